"""Time and energy against each other, as Zeus weighs them."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.objectives.base import OBJECTIVES, Sparing, is_endless, own_spending
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView


@OBJECTIVES.add
class Zeus(Sparing):
    """The most accuracy gain per eta E + (1 - eta) P_max T, the cost of Zeus (You et al., NSDI 2023, Eq. 2).

    Zeus' P_max is the power limit of its GPU; here it is the power of all sites at full speed.
    """

    kind = "zeus"
    rules = 2
    """2: a round that would never end is worth nothing, also where energy alone counts, or time."""
    eta: float = Field(0.5, ge=0, le=1)
    """1: energy alone counts, 0: time alone."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) over the cost."""
        top_w = len(sites) * sites.full_power_w
        with np.errstate(invalid="ignore"):
            cost = self.eta * weighed.energy_j + (1 - self.eta) * top_w * weighed.round_s
        return weighed.gain / np.where(is_endless(weighed), np.inf, cost)

    def preference(self, sites: SiteView, history: History) -> np.ndarray:
        """Sites that need few joules, by eta."""
        return self.eta * self.spared(own_spending(sites, "energy_j"))
