"""The least carbon, energy or money within a deadline."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.sim.objectives.base import OBJECTIVES, Sparing, needed_gain, own_spending, recent_gain
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView

_SPENT = {"carbon": "carbon_g", "energy": "energy_j", "cost": "cost"}


@OBJECTIVES.add
class Deadline(Sparing):
    """The most accuracy gain for a gram of carbon among the cohorts whose gain per second would reach the target
    accuracy by the deadline; where there is none, the most gain per second."""

    kind = "deadline"
    deadline_s: Seconds = Field(gt=0)
    """Simulated time by which the target accuracy is to be reached."""
    least: Literal["carbon", "energy", "cost"] = "carbon"
    """What is spared."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) over what is spent where there is time for it, -inf elsewhere; dA(k) / T(k) where there never is."""
        in_time = weighed.efficiency >= self._need(sites, history)
        if not in_time.any():
            return weighed.efficiency
        # a price may be below 0: then the most money for a gain is the best
        spent = getattr(weighed, _SPENT[self.least]) / weighed.gain
        return np.where(in_time, -spent, -np.inf)

    def preference(self, sites: SiteView, history: History) -> np.ndarray:
        """Sites that spend little, as far as the last rounds were faster than the deadline asks for."""
        need, (gain, rows) = self._need(sites, history), recent_gain(history)
        took_s = sum(row.makespan_s for row in rows)
        slack = 1 - need * took_s / gain if gain > 0 else float(not rows)
        return np.clip(slack, 0, 1) * self.spared(own_spending(sites, _SPENT[self.least]))

    def _need(self, sites: SiteView, history: History) -> float:
        """Accuracy that has to be gained in every second that is left; inf where none is."""
        left_s = self.deadline_s - sites.clock_s
        return needed_gain(sites, history) / left_s if left_s > 0 else np.inf
