"""Power that a site has, as it changes."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from hpctrip.base.io import PathName
from hpctrip.base.series import Signal, read_signal
from hpctrip.base.units import Watts
from hpctrip.cluster.budgets.base import BUDGETS, Budget, Limit
from hpctrip.config.sources import Reads


@BUDGETS.add
class Power(Budget):
    """The whole cluster draws at most P(t): a constant, or a trace, which starts again at its end."""

    kind = "power"
    watts: Watts | None = Field(None, ge=0)
    """The same at all times."""
    path: Annotated[PathName | None, Reads()] = None
    """CSV file with the columns time_s and power_w; each value holds to the next time."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.watts is None) == (self.path is None):
            raise ValueError("needs either watts or path")
        return self

    def limit(self) -> Limit:
        """Reads the trace."""
        if self.path is None:
            return _PowerLimit(Signal.constant(self.watts or 0.0))
        return _PowerLimit(read_signal(self.path, "power_w", f"budget.path = {self.path!r}"))


class _PowerLimit(Limit):
    def __init__(self, power_w: Signal):
        self._power_w = power_w

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        return self._power_w.at(clock_s)

    def next_change_s(self, clock_s: float) -> float:
        return self._power_w.next_change_s(clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return len(self._power_w.value) == 1
