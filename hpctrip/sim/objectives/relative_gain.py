"""Time against energy by their relative changes, the greedy step of energy-aware schedulers."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.objectives.base import OBJECTIVES, Sparing, is_endless, own_spending
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView


@OBJECTIVES.add
class RelativeGain(Sparing):
    """More sites as long as the time to the target falls by more than `exchange` percent for each percent of energy:
    (dTTA / TTA) / (dE / E) > exchange, where a cohort's TTA is proportional to T(k) / dA(k) and its energy to
    E(k) / dA(k). That walk ends where TTA x E^exchange is least, which is what is looked for."""

    kind = "relative-gain"
    rules = 2
    """2: a round that would never end is worth nothing, and does not count in the others' share of energy."""
    exchange: float = Field(1.0, ge=0, le=100)
    """Percent of time that a percent of energy is worth: 0 is `time`, 1 the energy-delay product."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """The inverse of TTA x E^exchange, but for factors that all candidates share."""
        endless = is_endless(weighed)
        most_j = weighed.energy_j.max(initial=0.0, where=~endless)
        energy_j = np.where(endless, np.inf, weighed.energy_j) / (most_j or 1.0)
        return weighed.efficiency * (weighed.gain / weighed.gain.max() / energy_j) ** self.exchange

    def preference(self, sites: SiteView, history: History) -> np.ndarray:
        """Sites that need few joules, by what they are worth."""
        return self.exchange * self.spared(own_spending(sites, "energy_j"))
