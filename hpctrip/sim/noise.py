"""The noise-to-signal ratio nu of one site's update: how much the updates of a round differ.

Of N sites, those of a cohort train, with weights p_i (sum 1). Let d be the mean update of all N sites and s^2 the
mean of |d_i - d|^2 over them. Training gives two numbers, A = sum p_i |d_i|^2 and B = |sum p_i d_i|^2. Where the k
sites are drawn without replacement, with q = sum p_i^2 (N - k) / (N - 1), which is 0 where all take part, their
expectations are

    E A = |d|^2 + s^2        E B = |d|^2 + q s^2

so that s^2 = (A - B) / (1 - q) and |d|^2 = (B - q A) / (1 - q) are unbiased where sites weigh the same (else d is
nearly the mean weighted as the p_i are): the estimators of McCandlish et al.
2018, "An Empirical Model of Large-Batch Training", appendix A.1, with sites in place of samples, and with the
correction for a finite population, as N sites are all there are. One round's |d|^2 may be negative, and a ratio of
noisy numbers is biased, so each is smoothed over the rounds before nu = s^2 / |d|^2 is taken, as there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

SMOOTHING = 0.8
"""Weight of the past in the moving averages: about five rounds count."""
DEPTH = 64
"""Rounds in the moving averages: SMOOTHING^64 is below 1e-6."""
INITIAL_NOISE = 5.0
"""nu before anything is measured."""
LARGEST_NOISE = 1e6
"""Beyond it, no cohort but that of all sites has any gain."""
NOISE_WEIGHT = 0.2
"""How much the noise of the mean update slows training down; 1: as with the best step length for it."""


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


def noise_ratio(rounds: Sequence[tuple[int, float, float, int]], smoothing: float = SMOOTHING) -> float:
    """nu after `rounds`, oldest first, each as (updates that arrived, |d|^2, s^2, local work): the moving average of
    the noise over that of the signal, in which a round counts as much as it has sites. An update of twice the local
    work is about twice as long, so both are divided by its square. Rounds without an estimate are passed over; inf
    where no signal is left, NaN where nothing is known."""
    usable = np.array(
        [(sites, d2 / work**2, s2 / work**2) for sites, d2, s2, work in rounds[-DEPTH:] if not math.isnan(d2)]
    ).reshape(-1, 3)
    if not len(usable):
        return math.nan
    weights = usable[:, 0] * smoothing ** np.arange(len(usable))[::-1]
    signal, noise = weights @ usable[:, 1:]
    return float(noise / signal) if signal > 0 else math.inf


def bounded_noise(
    rounds: Sequence[tuple[int, float, float, int]],
    smoothing: float = SMOOTHING,
    initial: float = INITIAL_NOISE,
) -> float:
    """nu after `rounds` (`noise_ratio`), from 0 to LARGEST_NOISE; `initial` where nothing is known."""
    nu = noise_ratio(rounds, smoothing)
    return initial if math.isnan(nu) else min(max(nu, 0.0), LARGEST_NOISE)


def slowdown(worth: np.ndarray, num_sites: int, nu: float, weight: float = NOISE_WEIGHT) -> np.ndarray:
    """Progress of a round of all N sites over that of one in which as many train as `worth` [m] says, [m]: the form of
    McCandlish et al. 2018, Eq. 2.6, for draws without replacement."""
    return 1 + weight * nu * sampling(worth, num_sites) / worth
