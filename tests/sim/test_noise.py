"""How alike the updates of a cohort are: estimates without bias, and their smoothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

from hpctrip.sim.noise import DEPTH, estimate, noise_ratio
from hpctrip.sim.rounds import History

RNG = np.random.default_rng(7)
UPDATES = RNG.normal(0.3, 1.0, (12, 40))
"""Updates of 12 sites, 40 parameters each."""
MEAN = UPDATES.mean(0)
SIGNAL = float(MEAN @ MEAN)
NOISE = float(((UPDATES - MEAN) ** 2).sum(1).mean())


def estimate_of(cohort, weights=None):
    updates = UPDATES[cohort]
    weights = np.full(len(cohort), 1 / len(cohort)) if weights is None else weights
    mean = weights @ updates
    return estimate(np.linalg.norm(updates, axis=1), weights, float(np.linalg.norm(mean)), len(UPDATES))


@pytest.mark.parametrize("k", [2, 5, 11])
def test_over_all_cohorts_of_a_size_the_estimates_are_right_on_average(k):
    estimates = np.array([estimate_of(RNG.permutation(12)[:k]) for _ in range(4_000)])
    spread = estimates.std(0) / np.sqrt(len(estimates))
    assert abs(estimates[:, 0].mean() - SIGNAL) < 4 * spread[0]
    assert abs(estimates[:, 1].mean() - NOISE) < 4 * spread[1]


def test_all_sites_together_tell_both_numbers_exactly():
    assert estimate_of(np.arange(12)) == pytest.approx((SIGNAL, NOISE))


def test_one_update_tells_nothing_and_neither_does_a_cohort_that_one_site_outweighs_wholly():
    assert math.isnan(estimate_of(np.array([3]))[0])
    assert math.isnan(estimate(np.array([]), np.array([]), 0.0, 12)[1])
    assert math.isnan(estimate(np.ones(2), np.array([1.0, 0.0]), 1.0, 10**9)[0]) is False


def test_the_ratio_is_that_of_the_moving_averages_in_which_large_rounds_count_more():
    rounds = [(2, 1.0, 8.0, 1), (1, math.nan, math.nan, 1), (6, 2.0, 4.0, 1)]
    weights = np.array([0.5 * 2, 6])
    assert noise_ratio(rounds, 0.5) == pytest.approx((weights @ [8, 4]) / (weights @ [1, 2]))
    assert noise_ratio(rounds, 0.0) == pytest.approx(2.0)
    assert noise_ratio([(3, -0.1, 5.0, 1)]) == math.inf
    assert math.isnan(noise_ratio([])) and math.isnan(noise_ratio(rounds[1:2]))


def test_of_a_long_history_only_the_rounds_that_count_are_looked_at(history):
    (row,) = history((2, 0, None)).rows
    past = History(tuple(replace(row, update_signal=1.0, update_noise=float(n)) for n in range(1000)))
    assert len(past.estimates()) == DEPTH
    everything = [(row.num_arrived, row.update_signal, row.update_noise, 1) for row in past.rows]
    assert noise_ratio(past.estimates()) == noise_ratio(everything)


def test_rounds_of_more_local_work_count_no_more_than_others(history):
    """Updates of eight times the work are eight times as long, and as alike as others."""
    rows = [replace(row, update_signal=1.0, update_noise=5.0) for row in history(*[(10, 0, None)] * 2).rows]
    longer = replace(rows[0], local_work=8, update_signal=64.0, update_noise=64 * 50.0)
    assert noise_ratio(History((longer, rows[1])).estimates(), 0.5) == pytest.approx((25 + 5) / 1.5)
