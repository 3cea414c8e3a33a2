"""How far a point is from a figure, by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from hpctrip.study.calibrate.fit import Bars, not_told_apart, profile
from hpctrip.study.calibrate.search import Found


def bars(*log_ratio, at_least=()):
    return Bars(np.array(log_ratio), np.array([place in at_least for place in range(len(log_ratio))]))


def test_the_misfit_is_one_absolute_time_and_the_ratios_of_the_others_to_it():
    found = bars(0.5, 0.7, 0.1)
    assert found.exact and found.misfit == pytest.approx(0.5**2 + 0.2**2 + 0.4**2)
    assert found.rms == pytest.approx(math.sqrt(found.misfit / 3))


def test_what_is_not_known_bounds_the_misfit_from_below():
    for exact in (bars(0.3, 0.7, -0.4), bars(-0.5, 0.1, 0.2)):
        r = exact.log_ratio
        assert bars(math.nan, r[1], r[2]).misfit <= exact.misfit
        assert bars(r[0], math.nan, r[2]).misfit <= exact.misfit
        assert bars(math.nan, r[1], r[2] - 1, at_least=[2]).misfit <= exact.misfit


def test_a_reference_that_is_not_known_takes_the_place_where_the_misfit_is_least():
    def misfit(reference):
        return bars(reference, 0.6, 0.9).misfit

    least = bars(math.nan, 0.6, 0.9).misfit
    assert least == pytest.approx(misfit(0.5)) and least < min(misfit(0.45), misfit(0.55))


def test_a_bar_that_did_not_arrive_counts_where_even_its_bound_is_too_long():
    assert bars(0.0, 0.0, -0.4, at_least=[2]).misfit == 0
    assert bars(0.0, 0.0, 0.4, at_least=[2]).misfit == pytest.approx(0.16)
    assert not bars(0.0, 0.0, 0.4, at_least=[2]).exact
    assert (
        bars(-0.3, 0.0, at_least=[0]).misfit == 0
    )  # the reference took longer: as long as the paper says, then
    assert bars(0.3, 0.0, at_least=[0]).misfit == pytest.approx(0.18)


def test_the_region_of_a_constant_is_that_of_its_profile():
    assert not_told_apart(0.2, 7, 4) == pytest.approx(0.2 * (1 + 3.1824**2 / 3), rel=1e-4)
    assert not_told_apart(0.2, 4, 4) == math.inf


def test_a_profile_takes_the_best_point_of_every_value():
    assert profile(["a", "b", "a", "b"], [3.0, 1.0, 2.0, 1.5]) == {"a": 2, "b": 1}


def test_a_point_that_did_not_reach_a_bar_is_not_the_best_one_but_may_be_better():
    points = [bars(0.0, 0.1, at_least=[1]), bars(0.1, math.nan), bars(0.1, 0.4), bars(0.9, math.nan)]
    found = Found(None, [SimpleNamespace(bars=one) for one in points])
    assert found.best.bars is points[2]
    assert [point.bars for point in found.promising] == [points[1]]
    assert [point.bars for point in found.unreached] == [points[0]]
    none = Found(None, [SimpleNamespace(bars=one) for one in points[:2]])
    assert none.best.bars is points[0] and len(none.promising) == 1
