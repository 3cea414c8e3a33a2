"""How sure numbers are: means over seeds, time-to-accuracy over seeds, shares of test samples; all 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.units import HOUR_S
from hpctrip.record.reader import Run

Z_975 = 1.959964
"""The two-sided 95 % quantile of the normal distribution."""

# Student's t at 97.5 % for 1 to 9 degrees of freedom; above, the expansion of `student_t` is good to 2e-4.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


def student_t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t (Abramowitz & Stegun 26.7.5 from 10 degrees of freedom on)."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = Z_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half width of its 95 % confidence interval (Student t); the half width of one value is NaN."""
    x = np.asarray(values, dtype=float)
    half = student_t(len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return float(x.mean()), float(half)


def geometric_mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios above 0, and the ends of its 95 % interval (Student t over logarithms; NaN: of one)."""
    mean, half = mean_and_interval(np.log(ratios))
    return tuple(float(end) for end in np.exp([mean, mean - half, mean + half]))


def wilson(correct: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval (1927) of the share of which `correct` of `seen` samples are a draw: lower and upper bounds.

    Any shape; NaN where nothing was seen. It is about the test samples alone: other seeds may differ by more.
    """
    n = np.where(np.asarray(seen) > 0, seen, np.nan).astype(float)
    share, z2 = correct / n, Z_975**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_975 * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2)) / (1 + z2 / n)
    return np.maximum(centre - half, 0), np.minimum(centre + half, 1)


@dataclass(frozen=True)
class Times:
    """Time-to-accuracy of one configuration over its seeds.

    A seed that never got to the target counts with the time it spent, so `hours` is then a lower bound of the mean
    (and has no interval): leaving such seeds out would make the configuration look faster than it is.
    """

    hours: float
    half_width: float
    num_seeds: int
    num_reached: int
    accuracy: float
    """Mean over the seeds of the highest accuracy recorded; NaN where none was evaluated."""
    spent_h: tuple[float, ...] = ()
    """Of every seed: the hours to the target, or in all where it did not get there."""
    arrived: tuple[bool, ...] = ()
    """Which seeds got there."""

    @property
    def reached(self) -> bool:
        """Whether every seed got to the target."""
        return self.num_reached == self.num_seeds

    @property
    def place(self) -> tuple[float, float]:
        """Sorts those first that arrive with a greater share of their seeds, then the faster."""
        return -self.num_reached / self.num_seeds, self.hours

    @property
    def low(self) -> float:
        """Lower end of the interval in hours, never below 0, where no time is; NaN where there is no interval."""
        return max(0.0, self.hours - self.half_width) if np.isfinite(self.half_width) else np.nan

    @property
    def high(self) -> float:
        """Upper end of the interval in hours; NaN where there is none."""
        return self.hours + self.half_width

    def __str__(self) -> str:
        if not self.reached:
            return f"> {self.hours:.3g}"
        interval = f" ({self.low:.3g} to {self.high:.3g})" if np.isfinite(self.half_width) else ""
        return f"{self.hours:.3g}{interval}"

    def row(self) -> dict[str, float | int]:
        """Its numbers as they stand in a table; a bound is one where `num_reached` is below `num_seeds`."""
        return {
            "mean_h": self.hours,
            "low_h": self.low,
            "high_h": self.high,
            "num_seeds": self.num_seeds,
            "num_reached": self.num_reached,
            "best_accuracy": self.accuracy,
        }


def times(runs: Sequence[Run], target: float) -> Times:
    """Time-to-accuracy over the runs, which are the seeds of one configuration."""
    spent_s, reached = zip(*(run.spent(target) for run in runs), strict=True)
    spent_h = tuple(seconds / HOUR_S for seconds in spent_s)
    hours, half_width = mean_and_interval(spent_h)
    accuracies = [run.rounds["accuracy"] for run in runs]
    best = [each.max() for each in accuracies if each.notna().any()]
    return Times(
        hours=hours,
        half_width=half_width if all(reached) else np.nan,
        num_seeds=len(runs),
        num_reached=sum(reached),
        accuracy=float(np.mean(best)) if best else np.nan,
        spent_h=spent_h,
        arrived=reached,
    )
