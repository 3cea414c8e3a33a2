"""The sites with the lowest latency, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES, Decision
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class LowestLatency(FixedOrDynamic):
    """Sites by delay alone (Sec. 3.1), blind to power."""

    kind = "lowest-latency"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k first sites of the ranking."""
        return self.decide(best_first(-sites.comm_s), sites, history)
