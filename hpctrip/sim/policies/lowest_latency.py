"""The sites with the lowest latency, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.view import SiteView


@POLICIES.add
class LowestLatency(FixedOrDynamic):
    """Sites by delay alone (Sec. 3.1), blind to power."""

    kind = "lowest-latency"

    def log_score(self, sites: SiteView) -> np.ndarray:
        """That of the inverse of the delay."""
        return -np.log(sites.comm_s)
