"""The sites with the lowest latency, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES, Decision
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class LowestLatency(FixedOrDynamic):
    """Sites by delay alone (Sec. 3.1), blind to power."""

    kind = "lowest-latency"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k first sites of the ranking."""
        with np.errstate(divide="ignore"):
            order = self.objective.order(-np.log(sites.comm_s), sites, history)
        return self.decide(order, sites, history)
