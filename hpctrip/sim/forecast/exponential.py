"""Power returns to what it has been of late."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.sim.forecast.base import FORECASTS, Forecast, Past


@FORECASTS.add
class Exponential(Forecast):
    """Simple exponential smoothing (Brown 1956): an observation counts exp(-age / memory_s), at whatever times
    observations were made."""

    kind = "exponential"
    rules = 2
    """2: from observations that lie apart."""
    memory_s: Seconds = Field(1800.0, gt=0)
    """After so long an observation counts a third (1 / e)."""

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The weighted mean of what was observed."""
        times_s, power = past.observed(_MEMORIES * self.memory_s, self.memory_s / 100)
        weights = np.exp((times_s - times_s[-1]) / self.memory_s)
        return weights @ power / weights.sum()


_MEMORIES = 10
"""What is older counts less than 1 / 20,000."""
