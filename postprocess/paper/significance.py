"""p-values of estimates over seeds, and the false discovery rate of many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hpctrip.base.stats import UNKNOWN, Estimate, sign_test


def p_value(estimate: Estimate, value: float) -> float:
    """Two-sided p-value of a mean against a value, or of a geometric mean of ratios where the value is above 0: by the
    same tests as `Estimate.lies_above`, Student's t or, for a bound, the sign test in its own direction."""
    x = np.log(estimate.by_seed / value) if value > 0 else estimate.by_seed - value
    n = len(x)
    if estimate.bound == UNKNOWN or n < 2:
        return 1.0
    if estimate.bound:
        return min(1.0, 2 * sign_test(int(((x > 0) if estimate.bound == "at least" else (x < 0)).sum()), n))
    spread = x.std(ddof=1) / math.sqrt(n)
    return student_p(x.mean() / spread, n - 1) if spread else float(x.mean() == 0)


def student_p(t: float, freedom: int) -> float:
    """Two-sided p-value of Student's t with whole degrees of freedom (Abramowitz & Stegun 26.7.3 and 26.7.4)."""
    angle, odd = math.atan(abs(t) / math.sqrt(freedom)), freedom % 2
    term, total = math.cos(angle) ** odd, 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= (power + 1) / (power + 2) * math.cos(angle) ** 2
    inside = total * math.sin(angle)
    return 1 - (2 / math.pi * (angle + inside) if odd else inside)


def discoveries(p: Sequence[float], rate: float) -> np.ndarray:
    """Which of n tests are discoveries at this false discovery rate (Benjamini & Hochberg 1995), [n] bool; never one
    whose p-value is NaN."""
    ps = np.asarray(p, dtype=float)
    ordered = np.sort(ps[~np.isnan(ps)])
    below = ordered[ordered <= rate * np.arange(1, len(ordered) + 1) / max(1, len(ordered))]
    return ps <= (below[-1] if len(below) else -1.0)
