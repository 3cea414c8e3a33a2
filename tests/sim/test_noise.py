"""How alike the updates of a cohort are: estimates without bias, and their smoothing."""

import math
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest

from hpctrip.sim.noise import (
    DEPTH,
    INITIAL_WEIGHT,
    LARGEST_WEIGHT,
    SMALLEST_WEIGHT,
    curvature,
    estimate,
    noise_ratio,
    noise_weight,
    slowdown,
)


class Updates(NamedTuple):
    """The columns of a round's row that tell of its updates."""

    num_arrived: int
    update_signal: float
    update_noise: float
    local_work: int = 1
    mean_update_norm: float = math.nan
    update_cosine: float = math.nan


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
    rounds = [Updates(2, 1.0, 8.0), Updates(1, math.nan, math.nan), Updates(6, 2.0, 4.0)]
    weights = np.array([0.5 * 2, 6])
    assert noise_ratio(rounds, 0.5) == pytest.approx((weights @ [8, 4]) / (weights @ [1, 2]))
    assert noise_ratio(rounds, 0.0) == pytest.approx(2.0)
    assert noise_ratio([Updates(3, -0.1, 5.0)]) == math.inf
    assert math.isnan(noise_ratio([])) and math.isnan(noise_ratio(rounds[1:2]))


def test_of_a_long_history_only_the_rounds_that_count_are_looked_at(history):
    (row,) = history((2, 0, None)).rows
    past = [replace(row, update_signal=1.0, update_noise=float(n)) for n in range(1000)]
    assert noise_ratio(past) == noise_ratio(past[-DEPTH:])


def test_rounds_of_more_local_work_count_no_more_than_others(history):
    """Updates of eight times the work are eight times as long, and as alike as others."""
    rows = [replace(row, update_signal=1.0, update_noise=5.0) for row in history(*[(10, 0, None)] * 2).rows]
    longer = replace(rows[0], local_work=8, update_signal=64.0, update_noise=64 * 50.0)
    assert noise_ratio([longer, rows[1]], 0.5) == pytest.approx((25 + 5) / 1.5)


class Quadratic:
    """Ten sites that pull a model of six parameters towards their own minima: the loss of site i is (w - w_i) H (w -
    w_i) / 2, and its update -H (w - w_i)."""

    hessian = np.diag([0.05, 0.1, 0.2, 0.4, 0.8, 1.2])
    minima = np.random.default_rng(3).normal(0, 1, (10, 6))

    def updates(self, model):
        return (self.minima - model) @ self.hessian

    def loss(self, model):
        away = self.minima - model
        return float(((away @ self.hessian) * away).sum(1).mean()) / 2

    def round(self, model, cohort):
        """(new model, the mean update, what is measured of it besides the cosine)"""
        updates = self.updates(model)[cohort]
        mean, weights = updates.mean(0), np.full(len(cohort), 1 / len(cohort))
        norm = float(np.linalg.norm(mean))
        signal, noise = estimate(np.linalg.norm(updates, axis=1), weights, norm, len(self.minima))
        return model + mean, mean, Updates(len(cohort), signal, noise, 1, norm)


def test_two_successive_mean_updates_tell_the_curvature_without_bias():
    """Over all pairs of cohorts of four sites, the smoothed numerator is <D, H D>."""
    world, rng = Quadratic(), np.random.default_rng(11)
    measured, curved = [], []
    for _ in range(4_000):
        model, first, before = world.round(np.full(6, 1.5), rng.permutation(10)[:4])
        _, second, after = world.round(model, rng.permutation(10)[:4])
        after = after._replace(update_cosine=float(first @ second) / (before[4] * after[4]))
        measured.append(curvature([before, after]) * before.mean_update_norm**2)
        curved.append(float(first @ world.hessian @ first))
    error = np.array(measured) - curved
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))
    assert np.mean(curved) > 20 * abs(error.mean())


def test_a_cohort_makes_the_progress_that_curvature_and_noise_say():
    """On average over cohorts of k sites: that of all sites times 1 - c q nu, with c = a / (2 - a), where the Hessian
    has one eigenvalue, so that a is the same along every update."""
    world, start = Quadratic(), np.full(6, 1.5)
    world.hessian = 0.6 * np.eye(6)
    updates = world.updates(start)
    mean = updates.mean(0)
    nu = ((updates - mean) ** 2).sum(1).mean() / (mean @ mean)
    whole = world.loss(start) - world.loss(start + mean)
    for k in (2, 4):
        cohorts = [np.array(cohort) for cohort in combinations(range(10), k)]
        gained = np.mean([world.loss(start) - world.loss(start + updates[c].mean(0)) for c in cohorts])
        loss = slowdown(np.array([k]), 10, nu, 0.6 / (2 - 0.6))[0] - 1
        assert gained / whole == pytest.approx(1 - loss)


def curved(a):
    """Two rounds of a model whose updates have this curvature."""
    return [Updates(4, 1.0, 2.0, 1, 2.0), Updates(4, 1.0, 2.0, 1, 1.0, (1 - 4 * a) / 2)]


def test_the_weight_of_the_noise_follows_from_the_curvature_within_its_bounds():
    assert curvature(curved(0.4)) == pytest.approx(0.4)
    assert noise_weight(curved(0.4)) == pytest.approx(0.25)
    assert noise_weight(curved(1.3)) == noise_weight(curved(2.5)) == LARGEST_WEIGHT
    assert noise_weight(curved(-0.1)) == SMALLEST_WEIGHT
    assert noise_weight([]) == noise_weight(curved(0.4)[:1]) == INITIAL_WEIGHT


def test_rounds_without_an_update_are_passed_over_and_more_work_counts_as_longer_updates():
    first, then = curved(0.4)
    nothing = Updates(0, math.nan, math.nan, 1, 0.0)
    assert curvature([first, nothing, then]) == curvature([first, then])
    longer = first._replace(update_signal=9.0, update_noise=18.0, local_work=3, mean_update_norm=6.0)
    assert curvature([longer, then]) == pytest.approx(0.4)
