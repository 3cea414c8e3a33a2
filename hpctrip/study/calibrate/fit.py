"""How far a point is from the figure, and which values the figure cannot tell apart. Numbers only.

With r_i = ln(our hours / the paper's) of bar i, bar 0 being the one that the others are ratios of, a point's misfit is

    Q = r_0^2 + sum over i > 0 of (r_i - r_0)^2

which is one absolute time and n - 1 ratios. A bar that did not reach the target took at least the hours that it had,
and one that was not trained at this point may have taken any: then Q is the least that it can be, a lower bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.stats import student_t


@dataclass(frozen=True)
class Bars:
    """The bars of one point. Arrays [n], the reference first."""

    log_ratio: np.ndarray
    """r_i; NaN: not known."""
    at_least: np.ndarray
    """Whether r_i is a lower bound."""

    @property
    def known(self) -> bool:
        """Whether every bar has a time or a bound."""
        return bool(np.isfinite(self.log_ratio).all())

    @property
    def exact(self) -> bool:
        """Whether every bar has a time."""
        return self.known and not self.at_least.any()

    @property
    def misfit(self) -> float:
        """Q, or the least that it can be."""
        r, others = self.log_ratio, self.log_ratio[1:]
        exact = others[~self.at_least[1:] & np.isfinite(others)]
        bounds = others[self.at_least[1:] & np.isfinite(others)]
        reference = r[0] if np.isfinite(r[0]) and not self.at_least[0] else self._best(exact, bounds)
        if self.at_least[0]:
            reference = max(reference, r[0])
        over = np.maximum(bounds - reference, 0)
        return float(reference**2 + ((exact - reference) ** 2).sum() + (over**2).sum())

    @staticmethod
    def _best(exact: np.ndarray, bounds: np.ndarray) -> float:
        """The r_0 of the least Q. A bound counts where it lies above r_0; these are fewer the higher r_0 is."""
        above = bounds
        while True:
            reference = (exact.sum() + above.sum()) / (1 + len(exact) + len(above))
            left = above[above > reference]
            if len(left) == len(above):
                return float(reference)
            above = left

    @property
    def rms(self) -> float:
        """The root mean square of its n terms: a typical factor is e to this."""
        return math.sqrt(self.misfit / len(self.log_ratio))

    @property
    def sort(self) -> str:
        """What the misfit is: "exact", or "at least"."""
        return "exact" if self.exact else "at least"

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{self.rms:.3f}"


def not_told_apart(best: float, num_bars: int, num_constants: int) -> float:
    """The misfit up to which points are as good as the best one: the 95 % region of one constant by its profile, where
    the scatter of the bars is not known but estimated by the best fit itself (Bates & Watts 1988, Sec. 6.1). Infinite
    where there are no more bars than constants."""
    freedom = num_bars - num_constants
    return best * (1 + student_t(freedom) ** 2 / freedom) if freedom > 0 else math.inf


def profile(values: Sequence[object], misfits: Sequence[float]) -> dict[object, int]:
    """{value of a constant: the place of the point that fits best with it}, in the order of the values."""
    best: dict[object, int] = {}
    for place, (value, misfit) in enumerate(zip(values, misfits, strict=True)):
        if value not in best or misfit < misfits[best[value]]:
            best[value] = place
    return best
