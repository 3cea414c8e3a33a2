"""The contract of a forecast: a pure function of what has been observed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hpctrip.base.component import Component, Registry


@dataclass(frozen=True)
class Past:
    """What the profiler knows when a round begins."""

    now_s: float
    power: np.ndarray
    """The power fractions that it believes now, [N]."""
    observed: Callable[[], tuple[np.ndarray, np.ndarray]]
    """(times [m] in s, power fractions [m, N]) of its observations so far, oldest first, the present one included.
    Asked only by who needs it: it looks again at every observation."""
    truth: Callable[[float, float], np.ndarray]
    """The true mean power fractions [N] between two times: for an oracle alone."""


class Forecast(Component):
    """Base of all forecasts."""

    def power_fraction(self, past: Past, span_s: float) -> np.ndarray:
        """The mean power fraction [N] of every site that is expected over the `span_s` seconds from now."""
        raise NotImplementedError


FORECASTS = Registry("forecast", default="persistence")
