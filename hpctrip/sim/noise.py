"""How much the updates of a round differ, and how much that slows training down.

*The noise-to-signal ratio nu.* Of N sites, those of a cohort train, with weights p_i (sum 1). Let d be the mean update
of all N sites and s^2 the mean of |d_i - d|^2 over them. Training gives two numbers, A = sum p_i |d_i|^2 and B = |sum
p_i d_i|^2. Where the k sites are drawn without replacement, with q = sum p_i^2 (N - k) / (N - 1), which is 0 where all
take part, their expectations are

    E A = |d|^2 + s^2        E B = |d|^2 + q s^2

so that s^2 = (A - B) / (1 - q) and |d|^2 = (B - q A) / (1 - q) are unbiased where sites weigh the same (else d is
nearly the mean weighted as the p_i are): the estimators of McCandlish et al.
2018, "An Empirical Model of Large-Batch Training", appendix A.1, with sites in place of samples, and with the
correction for a finite population, as N sites are all there are. One round's |d|^2 may be negative, and a ratio of
noisy numbers is biased, so each is smoothed over the rounds before nu = s^2 / |d|^2 is taken, as there.

*The curvature a.* Let D be the mean update of a round, E |D|^2 = |d|^2 + q s^2, and D' that of the round after. To
second order, the model's step D changes the mean update of all sites from d to d - H D, and lowers the loss by

    <d, D> - <D, H D> / 2 = |d|^2 - a |D|^2 / 2,    a = <D, H D> / |D|^2

which is 1 where D leads to the minimum along its own direction, and 2 where it leads as far beyond. As the sampling of
the next round is independent, E <D, D'> = |d|^2 - E <D, H D>: so a = (|d|^2 - <D, D'>) / |D|^2, of smoothed numbers.

*The slowdown.* With all N sites, q = 0, a step gains |d|^2 (1 - a / 2), otherwise a q s^2 / 2 less: the progress is
that of all sites times 1 - c q nu, where c = a / (2 - a). As estimates are rough and c q nu may exceed 1, it is taken
to be 1 / (1 + c q nu), which has the same first order, and is McCandlish et al.'s Eq. 2.6 for c = 1, the best step
length. Beyond it, where c is above 1, small cohorts make no progress at all, which this form does not say: exp(-c q nu)
lies between the two, and is positive, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hpctrip.sim.rounds import RoundRow

SMOOTHING = 0.8
"""Weight of the past in the moving averages: about five rounds count."""
DEPTH = 64
"""Rounds in the moving averages: SMOOTHING^64 is below 1e-6."""
INITIAL_NOISE = 5.0
"""nu before anything is measured."""
LARGEST_NOISE = 1e6
"""Beyond it, no cohort but that of all sites has any gain."""
INITIAL_WEIGHT = 0.1
"""c before anything is measured."""
SMALLEST_WEIGHT, LARGEST_WEIGHT, STEEPEST_WEIGHT = 0.02, 1.0, 20.0
"""Bounds of c; the last one is that of the exponential form."""


def sampling(k: int | np.ndarray, num_sites: int) -> float | np.ndarray:
    """(N - k) / (N - 1): what is left of the variance of a mean, because k of N sites are drawn without replacement."""
    return (num_sites - k) / max(1, num_sites - 1)


def estimate(norms: np.ndarray, weights: np.ndarray, mean_norm: float, num_sites: int) -> tuple[float, float]:
    """(|d|^2, s^2), both unbiased, from a round in which updates of `norms` [m] counted with `weights` [m], sum 1, and
    whose weighted mean has the norm `mean_norm`. NaN where fewer than two of the N sites' updates arrived."""
    shared = float((weights**2).sum()) * sampling(len(norms), num_sites)
    if len(norms) < 2 or shared >= 1:
        return math.nan, math.nan
    mean_square, square_of_mean = float((weights * norms**2).sum()), mean_norm**2
    signal = (square_of_mean - shared * mean_square) / (1 - shared)
    return signal, (mean_square - square_of_mean) / (1 - shared)


def _smoothed(rows: Sequence[tuple[float, ...]], smoothing: float) -> np.ndarray | None:
    """The sum over rows, oldest first, of all numbers but the first, which is the row's weight; each later row lowers
    it by the factor `smoothing`. Rows with a NaN are passed over; None if none is left."""
    usable = np.array([row for row in rows if not math.isnan(sum(row))])
    if not len(usable):
        return None
    return usable[:, 0] * smoothing ** np.arange(len(usable))[::-1] @ usable[:, 1:]


def noise_ratio(rounds: Sequence[RoundRow], smoothing: float = SMOOTHING) -> float:
    """nu after `rounds`, oldest first: the moving average of the noise over that of the signal, in which a round
    counts as much as it has updates. An update of twice the local work is about twice as long, so both are divided
    by its square. Rounds without an estimate are passed over; inf where no signal is left, NaN where nothing is
    known."""
    rows = [
        (row.num_arrived, row.update_signal / row.local_work**2, row.update_noise / row.local_work**2)
        for row in rounds[-DEPTH:]
    ]
    sums = _smoothed(rows, smoothing)
    if sums is None:
        return math.nan
    signal, noise = sums
    return float(noise / signal) if signal > 0 else math.inf


def curvature(rounds: Sequence[RoundRow], smoothing: float = SMOOTHING) -> float:
    """a after `rounds`, oldest first, smoothed like nu; NaN where nothing is known. Rounds in which no update arrived
    are passed over."""
    rows = []
    for first, then in pairwise(row for row in rounds[-DEPTH:] if row.mean_update_norm > 0):
        norm = first.mean_update_norm / first.local_work
        product = then.update_cosine * norm * then.mean_update_norm / then.local_work
        signal = first.update_signal / first.local_work**2
        rows.append((first.num_arrived, signal - product, norm**2))
    sums = _smoothed(rows, smoothing)
    return math.nan if sums is None else float(sums[0] / sums[1])


def noise_weight(
    rounds: Sequence[RoundRow], smoothing: float = SMOOTHING, largest: float = LARGEST_WEIGHT
) -> float:
    """c after `rounds` (`curvature`), from SMALLEST_WEIGHT to `largest`; INITIAL_WEIGHT where nothing is known."""
    a = curvature(rounds, smoothing)
    if math.isnan(a):
        return INITIAL_WEIGHT
    return min(max(a / (2 - a), SMALLEST_WEIGHT), largest) if a < 2 else largest


def bounded_noise(
    rounds: Sequence[RoundRow], smoothing: float = SMOOTHING, initial: float = INITIAL_NOISE
) -> float:
    """nu after `rounds` (`noise_ratio`), from 0 to LARGEST_NOISE; `initial` where nothing is known."""
    nu = noise_ratio(rounds, smoothing)
    return initial if math.isnan(nu) else min(max(nu, 0.0), LARGEST_NOISE)


def slowdown(worth: np.ndarray, num_sites: int, nu: float, weight: float) -> np.ndarray:
    """Progress of a round of all N sites over that of one in which as many train as `worth` [m] says, [m], with the
    weight c of the noise."""
    return 1 + weight * nu * sampling(worth, num_sites) / worth
