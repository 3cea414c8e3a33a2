"""The truth, as an upper bound."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.forecast.base import FORECASTS, Forecast, Past


@FORECASTS.add
class Oracle(Forecast):
    """What the power will be: no forecast, but the most that any could bring."""

    kind = "oracle"

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The true mean over the span."""
        return past.truth(past.now_s, past.now_s + span_s)
