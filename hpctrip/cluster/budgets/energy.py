"""So many kilowatt-hours."""

from __future__ import annotations

from pydantic import Field

from hpctrip.base.units import J_PER_KWH, Seconds
from hpctrip.cluster.budgets.base import BUDGETS, Budget, Limit, accrued


@BUDGETS.add
class Energy(Budget):
    """Energy of the whole cluster, given out evenly over a period; what is not used is kept for later."""

    kind = "energy"
    kwh: float = Field(gt=0, le=1e12)
    """All of it."""
    period_s: Seconds = Field(gt=0, le=1e9)
    """Over which it is given out."""

    def limit(self) -> Limit:
        """One that is renewed every round."""
        return _EnergyLimit(self.kwh * J_PER_KWH, self.period_s)


class _EnergyLimit(Limit):
    renewed = True

    def __init__(self, total_j: float, period_s: float):
        self._total_j, self._period_s = total_j, period_s

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        allowed_j = accrued(self._total_j, until_s, self._period_s) - energy_j
        return max(allowed_j, 0.0) / (until_s - clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return clock_s >= self._period_s
