"""Statistics over seeds: intervals, and the one rule by which two configurations are compared."""

import math

import numpy as np
import pytest

from hpctrip.base import stats
from hpctrip.base.stats import Estimate, Times, compare, in_order, mean_interval, on_front


def times(*hours, **by_seed):
    """Times of seeds 0, 1, ... or s1, s7, ...; a negative number of hours was spent without reaching the target."""
    spent = by_seed or {f"s{seed}": value for seed, value in enumerate(hours)}
    return Times.of((int(seed[1:]), abs(h), h > 0, 0.5 if h > 0 else 0.3) for seed, h in spent.items())


def test_the_interval_of_three_seeds_uses_students_t_with_two_degrees_of_freedom():
    mean, half = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0 and half == pytest.approx(4.3027 / np.sqrt(3))  # standard deviation 1
    each = mean_interval(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    assert each[0].tolist() == [2, 5] and each[1] == pytest.approx([4.3027 / np.sqrt(3), 0])
    one, none = mean_interval([1.5])
    assert one == 1.5 and np.isnan(none) and Estimate.mean([1.5]).text() == "1.5"


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(9, 2.2622), (10, 2.2281), (20, 2.0860), (60, 2.0003), (1000, 1.9623)]
)
def test_students_t_agrees_with_printed_tables(freedom, quantile):
    assert stats.student_t(freedom) == pytest.approx(quantile, abs=2e-4)


@pytest.mark.parametrize(
    ("correct", "seen", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (452, 1000, 0.4214, 0.4830)],
)
def test_wilsons_interval_agrees_with_printed_values(correct, seen, low, high):
    assert stats.wilson(np.array(correct), np.array(seen)) == pytest.approx((low, high), abs=1e-4)
    assert np.isnan(stats.wilson(np.array([0]), np.array([0]))).all()


def test_the_front_holds_the_points_that_no_other_beats():
    x, y = np.array([1, 2, 3, 3, np.nan]), np.array([3, 2, 2, 1, 0])
    assert on_front(x, y).tolist() == [True, True, False, True, False]
    assert on_front(np.ones(2), np.ones(2)).tolist() == [True, True]  # neither is better
    assert on_front(np.array([0.3, 0.1 + 0.2]), np.ones(2)).tolist() == [True, True]  # but for rounding


def test_a_seed_that_never_arrives_makes_the_mean_a_lower_bound_without_interval():
    t = times(3, -6)
    assert (t.num_seeds, t.num_reached, t.reached) == (2, 1, False)
    assert t.mean.value == 4.5 and np.isnan([t.mean.low, t.mean.high]).all() and str(t) == "> 4.5"
    assert t.best_accuracy == pytest.approx(0.4)


def test_no_interval_of_times_reaches_below_zero():
    t = times(0.3, 9.0)
    assert t.mean.low == 0 and str(t) == "4.65 (cut at 0, to 59.9)"  # 4.65 + 12.7062 * 4.35


def test_a_ratio_is_the_geometric_mean_over_the_seeds_that_both_have():
    one, other = times(s1=2.0, s2=8.0, s7=5.0), times(s1=1.0, s2=1.0, s3=1.0)
    assert stats.shared_seeds(one, other) == [1, 2]
    ratio = compare(one, other)
    # t of one degree of freedom, standard deviation of log 2 and log 8, square root of 2 twice
    half = 12.7062 * math.log(4) / 2
    assert ratio.n == 2 and ratio.value == pytest.approx(4.0)
    assert (ratio.low, ratio.high) == pytest.approx((4 * math.exp(-half), 4 * math.exp(half)))


def test_a_difference_that_every_seed_shares_decides_though_the_intervals_overlap():
    slow, fast = times(1.2, 2.4, 3.6, 4.8), times(1, 2, 3, 4)
    assert slow.mean.low < fast.mean.high
    assert compare(slow, fast).verdict == "slower" and compare(fast, slow).verdict == "faster"
    assert compare(times(2, 1, 3.5), times(1, 2, 3)).verdict == "not significant"


def test_a_pair_of_one_seed_has_a_ratio_without_interval_and_decides_nothing():
    ratio = compare(times(3), times(2))
    assert ratio.text() == "1.5" and ratio.verdict == "no interval" and ratio.lies_above(1) is None


def test_without_a_shared_seed_there_is_no_ratio():
    ratio = compare(times(s0=1), times(s1=2))
    assert ratio.n == 0 and ratio.text() == "-" and ratio.verdict == "unknown"


def test_a_seed_that_did_not_arrive_on_one_side_makes_a_bound_without_interval():
    assert compare(times(-3, 4), times(2, 2)).text() == "at least 1.73"
    assert compare(times(3, 4), times(2, -2)).text() == "at most 1.73"
    all_at_the_cap = compare(times(1, 1, 1), times(-1.02, -1.02, -1.02))
    assert all_at_the_cap.text() == "at most 0.98" and all_at_the_cap.verdict == "not significant"


def test_seeds_that_did_not_arrive_on_both_sides_leave_the_ratio_unknown_and_are_not_left_out():
    same_seeds = compare(times(0.5, 0.51, 0.52, -1, -1), times(1, 1.01, 1.02, -1, -1))
    other_seeds = compare(times(1, -2, 1), times(-2, 1, 1))
    for ratio in (same_seeds, other_seeds):
        assert ratio.text() == ratio.verdict == "unknown" and math.isnan(ratio.value)
        assert ratio.complement.text() == "unknown"


@pytest.mark.parametrize(("arrived", "verdict"), [(5, "not significant"), (6, "faster")])
def test_a_bound_decides_by_the_sign_test_over_its_seeds(arrived, verdict):
    assert compare(times(*[1] * arrived), times(*[-2] * arrived)).verdict == verdict


def test_a_bound_decides_in_its_own_direction_only():
    spent_more = compare(times(*[3] * 10), times(*[2] * 9, -2))
    assert spent_more.bound == "at most" and spent_more.verdict == "not significant"
    one_against = compare(times(*[1] * 10), times(*[2] * 8, -2, 0.5))
    assert one_against.verdict == "faster"  # nine of ten
    two_against = compare(times(*[1] * 10), times(*[2] * 7, -2, 0.5, 0.5))
    assert two_against.verdict == "not significant"


def test_the_share_that_is_saved_is_the_complement_of_the_ratio():
    ratio = compare(times(1, 1.1, 0.9), times(2, 2.1, 1.9))
    saved = ratio.complement
    assert (saved.value, saved.low, saved.high) == (1 - ratio.value, 1 - ratio.high, 1 - ratio.low)
    assert saved.lies_above(0) and ratio.lies_above(1) is False and saved.low <= 0.5 <= saved.high
    assert compare(times(1), times(-2)).complement.text() == "at least 0.5"


def test_a_configuration_takes_as_long_as_itself_also_where_it_did_not_arrive():
    base = times(1, -2)
    assert compare(base, base).text() == "1 (1 to 1)"
    assert compare(base, times(1, -2)).bound == "unknown"


def test_equal_times_are_a_tie_in_whatever_order_they_are_given():
    named = [("b", times(1, 2)), ("a", times(1, 2)), ("c", times(0.5, 1)), ("d", times(0.1, -0.1))]
    assert in_order(named) == in_order(reversed(named)) == "c < a = b < d"
    apart = [("a", times(1, 2, 3)), ("b", times(3, 2, 2)), ("c", times(9, 18, 27))]
    assert in_order(apart, by_verdict=True) == "a ≈ b < c" and in_order(apart) == "a < b < c"


def test_times_that_are_equal_but_for_rounding_decide_nothing():
    ratio = compare(times(*[0.1 + 0.2] * 6), times(*[0.3] * 6))
    assert ratio.text() == "1 (1 to 1)" and ratio.verdict == "not significant"
    bound = compare(times(*[0.3] * 6), times(*[-0.1 - 0.2] * 6))
    assert bound.text() == "at most 1" and bound.verdict == "not significant"


def test_those_stand_first_that_arrive_with_a_greater_share_of_their_seeds():
    assert in_order([("seldom", times(1, -1, -1)), ("often", times(9, 9, -9))]) == "often < seldom"
