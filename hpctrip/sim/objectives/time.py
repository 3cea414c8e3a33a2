"""The paper's objective: accuracy gain per second."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.objectives.base import OBJECTIVES, Objective
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView


@OBJECTIVES.add
class Time(Objective):
    """The most projected accuracy gain per second (Sec. 3.3)."""

    kind = "time"

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) / T(k)."""
        return weighed.efficiency
