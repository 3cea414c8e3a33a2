"""Power stays as it is."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.forecast.base import FORECASTS, Forecast, Past


@FORECASTS.add
class Persistence(Forecast):
    """Every site keeps the power that the profiler believes now: what every other forecast has to beat."""

    kind = "persistence"

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The present power."""
        return past.power
