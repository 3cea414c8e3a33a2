"""Differences to a baseline, seed by seed."""

import numpy as np
import pytest

from hpctrip.figures import paired
from hpctrip.figures.common import grouping, reading
from hpctrip.record.reader import InputError


def runs_of(make_run, policy, hours, **settings):
    """Runs that reach the target after three rounds of so many hours, one a seed."""
    return [make_run(f"{policy}{s}", policy, hours=h, seed=s, **settings) for s, h in enumerate(hours)]


def pairs_of(paths):
    base, other = grouping.grouped(reading.read_runs(paths))
    return paired.Pairs(other.label, other.times(0.45), base.times(0.45))


def test_a_difference_that_every_seed_shares_is_told_apart_though_the_intervals_overlap(make_run, drawn):
    paths = runs_of(make_run, "powertrip", (1, 2, 3, 4)) + runs_of(make_run, "random", (1.2, 2.4, 3.6, 4.8))
    lines = drawn("paired", *paths)
    assert lines[0].endswith("95 % interval ratio (95 %) than powertrip seeds left out")
    assert "random 4 +1.5 +0.267 to +2.73 1.2 (1.2 to 1.2) slower 0" in lines


def test_an_interval_that_holds_0_tells_nothing_apart(make_run):
    found = pairs_of(runs_of(make_run, "powertrip", (1, 2, 3)) + runs_of(make_run, "random", (2, 1, 3.5)))
    assert found.hours == pytest.approx([3, -3, 1.5])
    assert found.ratio.verdict == "not told apart"


def test_seeds_without_a_partner_are_left_out_and_counted(make_run):
    found = pairs_of(runs_of(make_run, "powertrip", (1, 2, 3)) + runs_of(make_run, "random", (1,)))
    assert (found.seeds, found.num_left_out, found.ratio.verdict) == ([0], 2, "no interval")


def test_what_did_not_reach_the_target_is_a_bound_and_leaves_no_mean(make_run):
    missed = {"accuracy": (0.1, 0.2, 0.3)}
    found = pairs_of(runs_of(make_run, "powertrip", (1,)) + runs_of(make_run, "random", (2,), **missed))
    assert (found.hours.tolist(), found.bounds) == ([3.0], ["at least"])
    assert np.isnan(found.mean.value)
    found = pairs_of(runs_of(make_run, "all", (1,), **missed) + runs_of(make_run, "static", (2,)))
    assert found.bounds == ["at most"]
    found = pairs_of(
        runs_of(make_run, "centralized", (1,), **missed) + runs_of(make_run, "fixed-radius", (2,), **missed)
    )
    assert (found.seeds, found.num_left_out) == ([], 1)


def test_seeds_that_neither_brought_to_the_target_leave_the_ratio_unknown(make_run, drawn):
    missed = {"accuracy": (0.1, 0.2, 0.3)}
    paths = [
        make_run(f"{policy}{seed}", policy, hours=hours, seed=seed, **(missed if seed > 2 else {}))
        for policy, hours in (("powertrip", 1.0), ("random", 0.5))
        for seed in range(5)
    ]
    assert "random 3 - - unknown unknown 2" in drawn("paired", *paths)


def test_a_baseline_must_be_there(make_run):
    runs = reading.read_runs(runs_of(make_run, "static", (1,)) + runs_of(make_run, "random", (2,)))
    with pytest.raises(InputError, match="no run is of policy powertrip; the labels are static, random"):
        paired.plot(runs)
    assert paired.plot(runs, baseline="random").table["difference_h"].tolist() == [-3]
    with pytest.raises(InputError, match="are of one configuration, static"):
        paired.plot(runs[:1])
