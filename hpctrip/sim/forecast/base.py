"""The contract of a forecast: a pure function of what has been observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hpctrip.base.component import Component, Registry

_MOST = 1000


@dataclass(frozen=True)
class Past:
    """What the profiler knows when a round begins."""

    now_s: float
    power: np.ndarray
    """The power fractions that it believes now, [N]."""
    observed: Callable[[float, float], tuple[np.ndarray, np.ndarray]]
    """(times [m] in s, power fractions [m, N]) of its observations, oldest first, the present one included: those of so
    many last seconds that are at least so many seconds apart (`newest_apart`). Asked only by who needs it: it looks
    again at every one."""
    truth: Callable[[float, float], np.ndarray]
    """The true mean power fractions [N] between two times: for an oracle alone."""


def newest_apart(times_s: np.ndarray, span_s: float, apart_s: float) -> list[int]:
    """Which of some rising times [m] lie in the last `span_s` seconds and at least `apart_s` apart, counted from the
    newest, which is always among them: indices, oldest first, 1,000 at most."""
    kept = [len(times_s) - 1]
    for i in range(len(times_s) - 2, -1, -1):
        if len(kept) == _MOST or times_s[i] < times_s[-1] - span_s:
            break
        if times_s[i] <= times_s[kept[-1]] - apart_s:
            kept.append(i)
    return kept[::-1]


class Forecast(Component):
    """Base of all forecasts."""

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The mean power fraction [N] of every site that is expected over the `span_s` seconds from now."""
        raise NotImplementedError


FORECASTS = Registry("forecast", default="persistence")
