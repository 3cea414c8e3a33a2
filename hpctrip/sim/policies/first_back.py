"""The sites that are back first, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.predict import return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class FirstBack(FixedOrDynamic):
    """Sites by when they return, c_i / P_i + L_i, ranked anew every round: what a round waits for, not a mix of power
    and cost."""

    kind = "first-back"
    rules = 2
    """2: who cannot be back by the deadline comes last, and the objective has its say."""

    def log_score(self, sites: SiteView) -> np.ndarray:
        """That of the inverse of the time."""
        return -np.log(return_s(sites))
