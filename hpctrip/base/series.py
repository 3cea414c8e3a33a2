"""Values that change with time in steps: power of a site, or grams of carbon for a kilowatt-hour.

The contract of all of them is `at(clock_s)`, the value or the values [N] of the sites at a simulated time, and
`next_change_s(clock_s)`, the first time after `clock_s` at which one may change, or inf. Between two changes a value
is constant, so integrals over time are exact: sums over the `spans` between changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.validate import instance, numbers, positive

_MAX_MEAN_STEPS = 288
"""A day of five-minute steps: the mean over more of them is taken at as many evenly spaced times."""


def never(clock_s: float) -> float:
    """The next change of what never changes: inf."""
    return np.inf


def next_step_s(clock_s: float, step_s: float) -> float:
    """The first multiple of `step_s` after `clock_s`; inf where `step_s` is."""
    if step_s == np.inf:
        return np.inf
    step = clock_s // step_s
    following = (step + 1) * step_s
    return following if following > clock_s else (step + 2) * step_s  # `clock_s` is a multiple, rounded down


def remembered(next_change_s: Callable[[float], float]) -> Callable[[float], float]:
    """The same function, which is asked once for the times between two changes."""
    from_s, until_s = np.inf, np.inf

    def following(clock_s: float) -> float:
        nonlocal from_s, until_s
        if not from_s <= clock_s < until_s:
            from_s, until_s = clock_s, next_change_s(clock_s)
        return until_s

    return following


def spans(start_s: float, next_change_s: Callable[[float], float]) -> Iterator[tuple[float, float, float]]:
    """The time from `start_s` on, cut at the changes: (beginning, end, time at which to ask for the values), without
    end. The values are asked for at the middle, which is safe from the rounding of the edges."""
    while True:
        end_s = next_change_s(start_s)
        yield start_s, end_s, start_s if np.isinf(end_s) else (start_s + end_s) / 2
        start_s = end_s


def asked_s(start_s: float, end_s: float, next_change_s: Callable[[float], float]) -> Iterator[float]:
    """The times at which to ask for the values between two times, of the first steps alone where there are many."""
    steps = spans(start_s, lambda clock_s: min(next_change_s(clock_s), end_s))
    return islice(takewhile(lambda at_s: at_s < end_s, (at_s for *_, at_s in steps)), _MAX_MEAN_STEPS)


def mean(
    at: Callable[[float], np.ndarray], next_change_s: Callable[[float], float], start_s: float, end_s: float
) -> np.ndarray:
    """The mean between two times, [N]; the value at `start_s` where nothing changes in between."""
    changes_s: list[float] = []
    for _, change_s, _ in spans(start_s, next_change_s):
        if change_s > end_s or len(changes_s) == _MAX_MEAN_STEPS:
            break
        changes_s.append(change_s)
    if not changes_s:
        return at(start_s)
    if len(changes_s) == _MAX_MEAN_STEPS:
        changes_s = list(np.linspace(start_s, end_s, _MAX_MEAN_STEPS)[1:-1])
    edges_s = np.array([start_s, *changes_s, end_s])
    spans_s = np.diff(edges_s)
    # where the last change is the end, nothing is asked for what comes after it
    middles_s = np.minimum((edges_s[:-1] + edges_s[1:]) / 2, np.nextafter(end_s, start_s))
    values = np.stack([at(middle_s) for middle_s in middles_s])
    return spans_s @ values / spans_s.sum()


@dataclass(frozen=True)
class Signal:
    """Values each of which holds until the time of the next, over a period after which they start again."""

    start_s: np.ndarray
    """[K] rising, from 0."""
    value: np.ndarray
    """[K]."""
    period_s: float

    @classmethod
    def constant(cls, value: float) -> Signal:
        """A signal that never changes."""
        return cls(np.zeros(1), np.array([value]), np.inf)

    @classmethod
    def checked(cls, signal: object, low: float, high: float, place: str, what: str) -> Self:
        """The same signal. InputError at `place` where it is none: its values must lie within [low, high], its times
        rise from 0 and end before the period does."""
        signal = instance(signal, cls, place, what)
        value = numbers(signal.value, (max(np.size(signal.value), 1),), low, high, place, what)
        period_s = positive(signal.period_s, place, f"the period of {what}")
        start_s = numbers(signal.start_s, value.shape, 0.0, period_s, place, f"the times of {what}")
        endless = len(start_s) > 1 and period_s == np.inf
        if start_s[0] != 0 or endless or (np.diff(start_s, append=period_s) <= 0).any():
            problem = f"gave times of {what} that do not rise from 0 to the end of a period of {period_s:g} s"
            raise InputError(
                place, problem, "it begins again after its period; only one that never changes has none"
            )
        return replace(signal, start_s=start_s, value=value, period_s=period_s)

    def cut(self, begin_s: float, end_s: float) -> Signal:
        """The values from one time within the period to another, which then start again."""
        first = int(np.searchsorted(self.start_s, begin_s, side="right")) - 1
        inside = slice(first, int(np.searchsorted(self.start_s, end_s, side="left")))
        return Signal(np.maximum(self.start_s[inside] - begin_s, 0.0), self.value[inside], end_s - begin_s)

    def begun_at(self, time_s: float) -> Signal:
        """The same values again and again, begun at another time."""
        begin_s = time_s % self.period_s
        first = int(np.searchsorted(self.start_s, begin_s, side="right")) - 1
        turned_s = np.append(self.start_s[first:], self.start_s[: first + 1] + self.period_s) - begin_s
        value = np.append(self.value[first:], self.value[: first + 1])
        lasts = turned_s < self.period_s
        return Signal(np.maximum(turned_s[lasts], 0.0), value[lasts], self.period_s)

    def at(self, clock_s: float) -> float:
        """The value at a time."""
        within_s = clock_s % self.period_s if np.isfinite(self.period_s) else clock_s
        return float(self.value[np.searchsorted(self.start_s, within_s, side="right") - 1])

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the value changes; inf: never."""
        if not np.isfinite(self.period_s):
            return np.inf
        turn, within_s = divmod(clock_s, self.period_s)
        later = np.searchsorted(self.start_s, within_s, side="right")
        following = turn * self.period_s + (
            self.start_s[later] if later < len(self.start_s) else self.period_s
        )
        # rounding must not hold the clock where it is
        return max(float(following), float(np.nextafter(clock_s, np.inf)))
