"""Stop rules: when a run is over."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field

from hpctrip.base.units import Grams, Joules, Seconds
from hpctrip.config.component import Component
from hpctrip.config.identity import Added, NotInResult
from hpctrip.sim.energy import MONEY, Budget, budgets
from hpctrip.sim.rounds import History


class Stop(Component):
    """Rules that end the run; the first to fire is recorded."""

    target_accuracy: Annotated[
        float | None, BeforeValidator(lambda value: None if value == "none" else value)
    ] = Field(0.45, gt=0, le=1)
    """Stop at this held-out accuracy; the simulated time is the time-to-accuracy. "none": no target."""
    max_rounds: int = Field(500, ge=1, le=10**9)
    """Stop after this number of rounds."""
    max_samples: Added[int | None] = Field(None, ge=1, le=10**18)
    """Stop when the updates that have arrived trained on this number of samples; steps are samples by the batch
    size."""
    max_clock_s: Seconds | None = Field(None, gt=0)
    """Stop after this simulated time."""
    deadline_s: NotInResult[Seconds | None] = Field(None, gt=0)
    """Stops nothing: the simulated time by which the target accuracy is wanted, e.g. "60 h". The end of a run, `show`
    and the table of a study say whether it was met. Absent: policy.objective.deadline_s, if there is one."""
    max_wall_s: Seconds | None = Field(None, gt=0)
    """Stop after this wall time."""
    max_energy: Joules | None = Field(None, gt=0)
    """Stop when the run has used this energy, e.g. "500 kWh"; a plain number is joules. The round that exceeds one of
    the three budgets is finished and counted."""
    max_carbon: Grams | None = Field(None, gt=0)
    """Stop when the run has emitted this much CO2, e.g. "20 kg"; a plain number is grams. Needs [carbon]."""
    max_cost: str | None = Field(None, pattern=MONEY)
    """Stop when the run has cost this much: "100 EUR", in the currency of the prices (accounts.currency). Needs
    [price]."""

    @property
    def target(self) -> float:
        """The target accuracy; NaN where there is none."""
        return math.nan if self.target_accuracy is None else self.target_accuracy

    @property
    def budgets(self) -> list[Budget]:
        """The budgets of the whole run."""
        return budgets("stop", "max_", self)

    def deadlines_s(self, policy: Component) -> dict[str, float]:
        """{key: seconds} of the deadlines that are given: that by which the outcome is judged is the first."""
        own_s = getattr(getattr(policy, "objective", None), "deadline_s", None)
        keys = {"stop.deadline_s": self.deadline_s, "policy.objective.deadline_s": own_s}
        return {key: value for key, value in keys.items() if value is not None}

    def reason(self, history: History) -> str:
        """The rule that ends a run with this history; empty: none does."""
        row = history.last
        if row is None:
            return ""
        if self.target_accuracy is not None and row.accuracy >= self.target_accuracy:
            return f"target accuracy {self.target_accuracy:g} reached"
        if row.round >= self.max_rounds:
            return f"max_rounds = {self.max_rounds}"
        if self.max_samples is not None and history.num_samples >= self.max_samples:
            return f"max_samples = {self.max_samples}"
        if self.max_clock_s is not None and row.clock_s >= self.max_clock_s:
            return f"max_clock_s = {self.max_clock_s:g}"
        if self.max_wall_s is not None and sum(r.wall_s for r in history.rows) >= self.max_wall_s:
            return f"max_wall_s = {self.max_wall_s:g}"
        for budget in self.budgets:
            if history.total(budget.quantity.column) >= budget.amount:
                return str(budget)
        return ""
