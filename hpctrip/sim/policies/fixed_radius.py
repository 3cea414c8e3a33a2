"""All sites inside a radius."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import MILE_M, Metres
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class FixedRadius(Policy):
    """Every site with d <= radius, nearest first (Sec. 5.1: 1000 miles)."""

    kind = "fixed-radius"
    radius_m: Metres = Field(1000 * MILE_M, gt=0)
    """The radius."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The same sites every round. InputError where the radius holds none."""
        inside = np.flatnonzero(sites.distance_m <= self.radius_m)
        if len(inside) == 0:
            raise InputError(
                f"policy.radius_m = {self.radius_m / MILE_M:g} mi",
                "no site lies inside",
                f"the nearest is at {sites.distance_m.min() / MILE_M:.0f} mi",
            )
        return Decision(inside[np.argsort(sites.distance_m[inside], kind="stable")])
