"""Forecasts of a site's power over the coming round: pure functions of the profiler's observations.

Shapes: N sites, m observations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component, Registry

DAY_S = 86400.0
_MAX_OBSERVATIONS = 1000

FORECASTS = Registry("forecast", default="persistence")


@dataclass(frozen=True)
class Observations:
    """Power as the profiler has observed it up to the start of a round."""

    now_s: float
    power: np.ndarray
    """The power fractions that the profiler believes now, [N]."""
    observed: Callable[[float, float], tuple[np.ndarray, np.ndarray]]
    """observed(span_s, apart_s): (times [m] in s, power fractions [m, N]) of the observations of the last `span_s`
    seconds that are at least `apart_s` seconds apart, oldest first, the present one included (`newest_apart`). A
    function, because looking at every observation again takes time that most forecasts need not spend."""
    truth: Callable[[float, float], np.ndarray]
    """truth(start_s, end_s): the true mean power fractions [N] between two times; for `Oracle` alone."""


def newest_apart(times_s: np.ndarray, span_s: float, apart_s: float) -> list[int]:
    """Which of the rising times [m] lie in the last `span_s` seconds and at least `apart_s` apart, counted from the
    newest, which is always among them: indices, oldest first, 1,000 at most."""
    indices = [len(times_s) - 1]
    for i in range(len(times_s) - 2, -1, -1):
        if len(indices) == _MAX_OBSERVATIONS or times_s[i] < times_s[-1] - span_s:
            break
        if times_s[i] <= times_s[indices[-1]] - apart_s:
            indices.append(i)
    return indices[::-1]


class Forecast(Component):
    """Base of all forecasts."""

    knows_events: ClassVar[bool] = False
    """Whether it reckons with the announced events of [availability]; else the profiler does."""

    def power_fraction(self, past: Observations, span_s: float) -> np.ndarray:
        """The mean power fraction [N] of every site that is expected over the `span_s` seconds from now."""
        raise NotImplementedError


@FORECASTS.add
class Daily(Forecast):
    """The present power plus the expected change by each site's own daily profile. The profile is the mean observation
    in every part of the day. Before a day has passed, and for parts of the day without observations, power is assumed
    constant."""

    kind = "daily"
    rules = 2
    """2: from observations that lie apart."""
    part_s: Seconds = Field(3600.0, gt=0, le=DAY_S)
    """Length of one part of the day."""
    weight: float = Field(0.5, ge=0, le=1)
    """Weight of the profile's change: a profile of few days is mostly noise."""

    def power_fraction(self, past: Observations, span_s: float) -> np.ndarray:
        """The present power and the profile's difference between the middle of the span and now, within 0 to 1."""
        times_s, power = past.observed(np.inf, self.part_s / 4)
        before = self._level(times_s, power, past.now_s)
        after = self._level(times_s, power, past.now_s + span_s / 2)
        if before is None or after is None:
            return past.power
        return np.clip(past.power + self.weight * (after - before), 0.0, 1.0)

    def _level(self, times_s: np.ndarray, power: np.ndarray, at_s: float) -> np.ndarray | None:
        """The profile [N] at a time of the day, from observations that are at least half a day old; None without
        any."""
        part = np.floor(times_s % DAY_S / self.part_s)
        same = (part == np.floor(at_s % DAY_S / self.part_s)) & (times_s < at_s - DAY_S / 2)
        return power[same].mean(0) if same.any() else None


@FORECASTS.add
class Exponential(Forecast):
    """Simple exponential smoothing (Brown 1956): power returns to its recent mean, in which an observation has the
    weight exp(-age / memory_s)."""

    kind = "exponential"
    rules = 2
    """2: from observations that lie apart."""
    memory_s: Seconds = Field(1800.0, gt=0)
    """Age at which the weight of an observation is 1 / e."""

    def power_fraction(self, past: Observations, span_s: float) -> np.ndarray:
        """The weighted mean of the observations; those older than ten memories count less than 1 / 20,000 and are left
        out."""
        times_s, power = past.observed(10 * self.memory_s, self.memory_s / 100)
        weights = np.exp((times_s - times_s[-1]) / self.memory_s)
        return weights @ power / weights.sum()


@FORECASTS.add
class Oracle(Forecast):
    """The true power of the coming round: an upper bound on the benefit of any forecast."""

    kind = "oracle"
    knows_events = True

    def power_fraction(self, past: Observations, span_s: float) -> np.ndarray:
        """The true mean over the span."""
        return past.truth(past.now_s, past.now_s + span_s)


@FORECASTS.add
class Persistence(Forecast):
    """Every site keeps the power that the profiler sees now: the baseline for every other forecast."""

    kind = "persistence"

    def power_fraction(self, past: Observations, span_s: float) -> np.ndarray:
        """The present power."""
        return past.power


PERSISTENCE = Persistence()
