"""The sites that are back first, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES, Decision
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.predict import return_s
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class FirstBack(FixedOrDynamic):
    """Sites by when they return, c_i / P_i + L_i, ranked anew every round: what a round waits for, not a mix of power
    and cost."""

    kind = "first-back"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k first sites of the ranking."""
        return self.decide(best_first(-return_s(sites)), sites, history)
