"""The least time within a budget."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import Grams, Joules
from hpctrip.sim.objectives.base import OBJECTIVES, Sparing, needed_gain, own_spending, recent_gain
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView


@OBJECTIVES.add
class Budget(Sparing):
    """The most accuracy gain per second among the cohorts whose gain for what they spend would reach the target
    accuracy with what is left of every budget; where there is none, the most gain for what is spent."""

    kind = "budget"
    energy: Joules | None = Field(None, gt=0)
    """Of the whole run, e.g. "500 kWh"."""
    carbon: Grams | None = Field(None, gt=0)
    """Of the whole run, e.g. "20 kg"."""
    cost: float | None = Field(None, gt=0)
    """Of the whole run, in the currency of the input (accounts.currency)."""

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not self._budgets:
            raise ValueError("needs one or more of energy, carbon and cost")
        return self

    @property
    def _budgets(self) -> dict[str, float]:
        given = {"energy_j": self.energy, "carbon_g": self.carbon, "cost": self.cost}
        return {name: budget for name, budget in given.items() if budget is not None}

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) / T(k) where the budgets last, -inf where they do not; dA(k) over the scarcest where they never do."""
        needs = self._needs(sites, history)
        with np.errstate(divide="ignore"):  # what costs nothing lasts for ever
            lasts = np.stack([weighed.gain / getattr(weighed, name) / need for name, need in needs.items()])
        scarcest = lasts.min(axis=0)
        return np.where(scarcest >= 1, weighed.efficiency, -np.inf) if (scarcest >= 1).any() else scarcest

    def preference(self, sites: SiteView, history: History) -> np.ndarray:
        """Sites that spend little, the more the scarcer the budget is: not at all where the gain of the last rounds for
        what they spent would leave all of it over."""
        wanted = np.zeros(len(sites))
        gain, rows = recent_gain(history)
        for name, need in self._needs(sites, history).items():
            spent = sum(getattr(row, name) for row in rows)
            pressure = np.clip(need * spent / gain, 0, 1) if gain > 0 and spent > 0 else 1.0
            wanted += pressure * self.spared(own_spending(sites, name))
        return wanted

    def _needs(self, sites: SiteView, history: History) -> dict[str, float]:
        """{what: accuracy that has to be gained for each joule, gram or coin that is left}."""
        gain = needed_gain(sites, history)
        left = {name: budget - history.total(name) for name, budget in self._budgets.items()}
        return {name: gain / max(rest, 1e-9 * self._budgets[name]) for name, rest in left.items()}
