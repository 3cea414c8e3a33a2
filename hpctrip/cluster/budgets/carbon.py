"""So many grams of carbon."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from hpctrip.base.io import PathName
from hpctrip.base.series import Signal, read_signal
from hpctrip.base.units import J_PER_KWH, Seconds
from hpctrip.cluster.budgets.base import BUDGETS, Budget, Limit, accrued
from hpctrip.config.sources import Reads


@BUDGETS.add
class Carbon(Budget):
    """Carbon of the whole cluster's energy, given out evenly over a period; what is not used is kept for later."""

    kind = "carbon"
    grams: float = Field(gt=0, le=1e15)
    """All of it."""
    period_s: Seconds = Field(gt=0, le=1e9)
    """Over which it is given out."""
    path: Annotated[PathName, Reads()]
    """CSV file with the columns time_s and g_per_kwh; each value holds to the next time. It starts again at its end."""

    def limit(self) -> Limit:
        """Reads the trace."""
        signal = read_signal(self.path, "g_per_kwh", f"budget.path = {self.path!r}")
        return _CarbonLimit(self.grams, self.period_s, signal)


class _CarbonLimit(Limit):
    renewed = True

    def __init__(self, total_g: float, period_s: float, intensity: Signal):
        self._total_g, self._period_s = total_g, period_s
        self.intensity = intensity

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        allowed_g = max(accrued(self._total_g, until_s, self._period_s) - carbon_g, 0.0)
        intensity = self.intensity.at(clock_s)
        return allowed_g * J_PER_KWH / intensity / (until_s - clock_s) if intensity else math.inf

    def next_change_s(self, clock_s: float) -> float:
        return self.intensity.next_change_s(clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return clock_s >= self._period_s and not (self.intensity.value == 0).any()
