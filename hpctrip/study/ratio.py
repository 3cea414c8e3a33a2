"""How two variants compare seed by seed: their hours to the target as a ratio, with its interval or as a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.units import HOUR_S
from hpctrip.figures.common.intervals import mean_and_interval
from hpctrip.record.reader import Run


class Missing(Exception):
    """What is asked for was not run, or cannot be compared. The text says what."""


UNKNOWN = "unknown"


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval (Student t); the ends of one value are NaN."""

    value: float
    low: float
    high: float
    n: int
    bound: str = ""
    """"at least" or "at most" where some seeds did not reach the target in the time that they had; "unknown" where of
    both that are compared some did not: then no number is known."""

    @classmethod
    def of(cls, values: Sequence[float] | np.ndarray, bound: str = "") -> Estimate:
        """Of one value a seed."""
        mean, half = mean_and_interval(values)
        return cls(mean, mean - half, mean + half, len(values), bound)

    def mapped(self, change: np.ufunc) -> Estimate:
        """Each number changed by a function that rises."""
        return Estimate(*(float(change(x)) for x in (self.value, self.low, self.high)), self.n, self.bound)

    def negated(self) -> Estimate:
        """Of the opposite quantity."""
        bound = {"at most": "at least", "at least": "at most"}.get(self.bound, self.bound)
        return Estimate(-self.value, -self.high, -self.low, self.n, bound)

    def holds(self, value: float) -> bool:
        """Whether the interval holds this value."""
        return bool(self.low <= value <= self.high)

    def text(self, form: str = "{:.3g}") -> str:
        """`0.62 (0.55 to 0.7)`, with the bound before it."""
        if np.isnan(self.value):
            return UNKNOWN
        spread = f" ({form.format(self.low)} to {form.format(self.high)})" if np.isfinite(self.low) else ""
        return f"{self.bound} {form.format(self.value)}{spread}".strip()


def target_of(runs: Sequence[Run]) -> float:
    """The accuracy at which the runs are measured. Raises Missing where they disagree or have none."""
    targets = {float(run.meta["target_accuracy"]) for run in runs}
    if len(targets) != 1 or not min(targets) > 0:
        raise Missing(f"no common target accuracy ({', '.join(f'{t:g}' for t in sorted(targets))})")
    return targets.pop()


@dataclass(frozen=True)
class Times:
    """Hours to the target, or spent where it was not reached; [n] each, of the seeds that all variants have."""

    hours: np.ndarray
    reached: np.ndarray

    @property
    def place(self) -> tuple[float, float]:
        """Sorts those first that arrive with more of the seeds, then the faster."""
        return -self.reached.mean(), self.hours.mean()


def times(*variants: Sequence[Run]) -> list[Times]:
    """The times of several variants over the seeds that all of them have, in ascending order. Raises Missing where
    there is none, and as `target_of`."""
    by_seed = [{run.meta["seed"]: run for run in runs} for runs in variants]
    seeds = sorted(set.intersection(*map(set, by_seed)))
    if not seeds:
        raise Missing("the variants have no seed in common")
    goal = target_of([run for runs in variants for run in runs])
    found = []
    for runs in by_seed:
        spent_s, reached = zip(*(runs[seed].spent(goal) for seed in seeds), strict=True)
        found.append(Times(np.array(spent_s) / HOUR_S, np.array(reached)))
    return found


def log_ratio(fast: Times, slow: Times) -> Estimate:
    """ln(hours of `fast` / hours of `slow`), paired by seed: its exponential is the geometric mean of the ratios.

    Where some of `slow` did not arrive the ratio is at most that, where some of `fast` did not, at least that; where
    both happened, it is unknown.
    """
    if not fast.reached.all() and not slow.reached.all():
        return Estimate(np.nan, np.nan, np.nan, len(fast.hours), UNKNOWN)
    bound = "at most" if not slow.reached.all() else "at least" if not fast.reached.all() else ""
    return Estimate.of(np.log(fast.hours / slow.hours), bound)


def paired_ratio(one: Sequence[Run], other: Sequence[Run]) -> Estimate:
    """How many times the hours of `other` the runs of `one` take: the geometric mean over the seeds that both have,
    with its interval, or as a bound. Raises Missing as `times`."""
    return log_ratio(*times(one, other)).mapped(np.exp)
