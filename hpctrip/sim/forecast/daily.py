"""Power follows the hours of the day."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.sim.forecast.base import FORECASTS, Forecast, Past

DAY_S = 86400.0


@FORECASTS.add
class Daily(Forecast):
    """The present power, moved by as much as each site's own daily profile moves over the coming span. The profile is
    the mean of what was observed in every part of the day, so it knows nothing before a day has passed: until then,
    and for parts of the day that were never seen, power stays as it is."""

    kind = "daily"
    rules = 2
    """2: from observations that lie apart."""
    part_s: Seconds = Field(3600.0, gt=0, le=DAY_S)
    """Length of one part of the day."""
    weight: float = Field(0.5, ge=0, le=1)
    """How much of the profile's movement is believed: a profile of few days is mostly chance."""

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The present power and the profile's difference between the middle of the span and now, within 0 to 1."""
        times_s, power = past.observed(np.inf, self.part_s / 4)
        before = self._level(times_s, power, past.now_s)
        after = self._level(times_s, power, past.now_s + span_s / 2)
        if before is None or after is None:
            return past.power
        return np.clip(past.power + self.weight * (after - before), 0.0, 1.0)

    def _level(self, times_s: np.ndarray, power: np.ndarray, at_s: float) -> np.ndarray | None:
        """The profile [N] at a time of the day, of observations that are at least half a day old; None: there is
        none."""
        part = np.floor(times_s % DAY_S / self.part_s)
        same = (part == np.floor(at_s % DAY_S / self.part_s)) & (times_s < at_s - DAY_S / 2)
        return power[same].mean(0) if same.any() else None
