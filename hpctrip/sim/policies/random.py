"""A random cohort, drawn anew every round."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class Random(Policy):
    """k sites, every set equally likely (Sec. 5.1: random selection)."""

    kind = "random"
    k: int = Field(10, ge=1)
    """Cohort size."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """k distinct sites."""
        return Decision(rng.choice(len(sites), self.k, replace=False))

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
