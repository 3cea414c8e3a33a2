"""A synthetic daily profile: a cosine over the hours of the day, for those who have no data."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.series import Signal
from hpctrip.sim.signals.base import HIGHEST, SIGNALS, GridSignal, SignalModel, check_range, zones_by_seed
from hpctrip.sim.sites import SiteLaw

_HOUR_S = 3600.0


@SIGNALS.add
class Daily(SignalModel):
    """Synthetic: mean + swing cos(2 pi (hour - peak_hour) / 24), held over each hour of a site's local time."""

    kind = "daily"
    mean: float = Field(ge=-HIGHEST, le=HIGHEST)
    """Over the day, for a kilowatt-hour: grams of CO2 in [carbon], money in [price]."""
    swing: float = Field(0.0, ge=0, le=HIGHEST)
    """How far it rises above the mean, and falls below it."""
    peak_hour: float = Field(19.0, ge=0, lt=24)
    """Local hour at which it is highest."""
    spread: bool = True
    """Whether sites lie around the world: each draws one of 24 time zones from the stream (seed, "zone"). false: it is
    midnight everywhere when simulated time begins."""

    @model_validator(mode="after")
    def _finite(self) -> Self:
        if abs(self.mean) + self.swing > HIGHEST:
            raise ValueError(f"mean and swing together are beyond {HIGHEST:g}")
        return self

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """24 zones, or one."""
        hours = np.arange(24)
        profile = self.mean + self.swing * np.cos(2 * np.pi * (hours + 0.5 - self.peak_hour) / 24)
        check_range(table, profile)
        ahead = range(24) if self.spread else range(1)
        series = [Signal(hours * _HOUR_S, np.roll(profile, -hour), 24 * _HOUR_S) for hour in ahead]
        return GridSignal(
            [f"UTC+{hour}" for hour in ahead], series, zones_by_seed(num_sites, len(series), seed), True
        )
