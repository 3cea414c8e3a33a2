"""Piecewise constant functions of time, such as a site's power or the carbon intensity of electricity."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.door import instance, numbers, positive
from hpctrip.base.errors import InputError


@dataclass(frozen=True)
class Signal:
    """Periodic step function: each value holds from its time to the next, the last to the end of the period."""

    start_s: np.ndarray
    """[K] rising, from 0."""
    value: np.ndarray
    period_s: float

    @classmethod
    def constant(cls, value: float) -> Signal:
        """A signal that never changes."""
        return cls(np.zeros(1), np.array([value]), np.inf)

    @classmethod
    def checked(cls, value: object, low: float, high: float, place: str, what: str) -> Self:
        """`value` as a signal with values within [low, high] whose times rise from 0 to before the end of the period.
        InputError at `place` (the component's) where it is none."""
        signal = instance(value, cls, place, what)
        values = numbers(signal.value, (max(np.size(signal.value), 1),), low, high, place, what)
        period_s = positive(signal.period_s, place, f"the period of {what}")
        start_s = numbers(signal.start_s, values.shape, 0.0, period_s, place, f"the times of {what}")
        endless = len(start_s) > 1 and period_s == np.inf
        if start_s[0] != 0 or endless or (np.diff(start_s, append=period_s) <= 0).any():
            problem = f"gave times of {what} that do not rise from 0 to the end of a period of {period_s:g} s"
            raise InputError(
                place, problem, "it begins again after its period; only one that never changes has none"
            )
        return replace(signal, start_s=start_s, value=values, period_s=period_s)

    def at(self, clock_s: float) -> float:
        """The value at a time."""
        within_s = clock_s % self.period_s if np.isfinite(self.period_s) else clock_s
        return float(self.value[np.searchsorted(self.start_s, within_s, side="right") - 1])

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which it changes; inf: never."""
        if not np.isfinite(self.period_s):
            return np.inf
        turn, within_s = divmod(clock_s, self.period_s)
        later = self.start_s[self.start_s > within_s]
        following = turn * self.period_s + (later[0] if len(later) else self.period_s)
        # rounding must not hold the clock where it is
        return float(following) if following > clock_s else float(np.nextafter(clock_s, np.inf))


def read_signal(path: str, column: str, place: str) -> Signal:
    """Read a signal from a CSV file with columns time_s, rising, and `column`, from 0 to 1e12."""
    table = read_table(path, place)
    table.require("time_s", column)
    start_s, value = table.numbers("time_s"), table.numbers(column)
    if len(start_s) < 2:
        raise InputError(table.place, f"holds {len(start_s)} lines", "give two or more")
    table.refuse("time_s", np.diff(start_s, prepend=-np.inf) <= 0, "is not after the line above")
    table.refuse(column, (value < 0) | (value > 1e12), "is no number from 0 to 1e12")
    start_s = start_s - start_s[0]
    return Signal(start_s, value, float(2 * start_s[-1] - start_s[-2]))
