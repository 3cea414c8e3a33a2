"""Time-to-accuracy over seeds, with its confidence interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.units import HOUR_S
from hpctrip.record.reader import Run

# Student's t at 97.5 % for 1 to 9 degrees of freedom; above, the expansion of `student_t` is good to 2e-4.
_T_975 = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622)


def student_t(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t (Abramowitz & Stegun 26.7.5 from 10 degrees of freedom on)."""
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = 1.959964
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
    """Mean over the seeds of the highest accuracy recorded."""

    @property
    def reached(self) -> bool:
        """Whether every seed got to the target."""
        return self.num_reached == self.num_seeds

    def __str__(self) -> str:
        if not self.reached:
            return f"> {self.hours:.3g}"
        return f"{self.hours:.3g}" + (f" ± {self.half_width:.2g}" if np.isfinite(self.half_width) else "")


def times(runs: Sequence[Run], target: float) -> Times:
    """Time-to-accuracy over the runs, which are the seeds of one configuration."""
    rounds = [run.rounds for run in runs]
    tta_s = np.array([run.time_to(target) for run in runs])
    spent_s = np.array([r["clock_s"].iloc[-1] for r in rounds])
    reached = np.isfinite(tta_s)
    hours, half_width = mean_and_interval(np.where(reached, tta_s, spent_s) / HOUR_S)
    return Times(
        hours=hours,
        half_width=half_width if reached.all() else np.nan,
        num_seeds=len(runs),
        num_reached=int(reached.sum()),
        accuracy=float(np.mean([r["accuracy"].max() for r in rounds])),
    )
