"""Differences to a baseline, seed by seed."""

import numpy as np
import pytest

from hpctrip.figures import policies
from hpctrip.figures.common import grouping, reading
from hpctrip.record.reader import InputError


def runs_of(make_run, policy, hours, **settings):
    """Runs that reach the target after three rounds of so many hours, one a seed."""
    return [make_run(f"{policy}{s}", policy, hours=h, seed=s, **settings) for s, h in enumerate(hours)]


def pairs_of(paths):
    base, other = grouping.grouped(reading.read_runs(paths))
    return policies.pairs_of(other.label, other.times(0.45), base.times(0.45))


def test_a_difference_that_every_seed_shares_is_told_apart_though_the_intervals_overlap(make_run, drawn):
    paths = runs_of(make_run, "powertrip", (1, 2, 3, 4)) + runs_of(make_run, "random", (1.2, 2.4, 3.6, 4.8))
    lines = drawn("paired", *paths)
    assert lines[0].endswith("95 % interval ratio (95 %) than powertrip seeds left out")
    assert "random 4 +1.5 +0.267 to +2.73 1.2 (1.2 to 1.2) slower 0" in lines


def test_seeds_without_a_partner_are_left_out_and_counted(make_run):
    found = pairs_of(runs_of(make_run, "powertrip", (1, 2, 3)) + runs_of(make_run, "random", (1,)))
    assert (found.seeds, found.num_left_out, found.ratio.verdict) == ([0], 2, "no interval")


def test_what_did_not_reach_the_target_is_a_bound_and_leaves_no_mean(make_run, drawn):
    missed = {"accuracy": (0.1, 0.2, 0.3)}
    found = pairs_of(runs_of(make_run, "powertrip", (1,)) + runs_of(make_run, "random", (2,), **missed))
    assert (found.hours.tolist(), found.bounds) == ([3.0], ["at least"])
    assert np.isnan(found.mean.value)
    found = pairs_of(runs_of(make_run, "all", (1,), **missed) + runs_of(make_run, "static", (2,)))
    assert found.bounds == ["at most"]
    # seeds that neither brought to the target are left out of the picture and leave the ratio unknown
    neither = [make_run(f"{p}9", p, hours=2, seed=9, **missed) for p in ("powertrip", "static")]
    paths = [*runs_of(make_run, "powertrip", (1,)), *runs_of(make_run, "static", (2,)), *neither]
    assert "static 1 - - unknown unknown 1" in drawn("paired", *paths)
    (axes,) = policies.paired(reading.read_runs(neither)).picture.axes
    assert [text.get_text() for text in axes.texts] == ["neither reached the target"]


def test_the_baseline_is_powertrip_else_the_first_and_one_that_is_named_must_be_there(make_run):
    runs = reading.read_runs(runs_of(make_run, "static", (1,)) + runs_of(make_run, "random", (2,)))
    assert policies.paired(runs).table["difference_h"].tolist() == [3]
    with pytest.raises(InputError, match="nothing is labelled 'best'; the labels are static, random"):
        policies.paired(runs, baseline="best")
    assert policies.paired(runs, baseline="random").table["difference_h"].tolist() == [-3]
    with pytest.raises(InputError, match="are of one configuration, static"):
        policies.paired(runs[:1])


def test_runs_without_a_pair_are_refused(make_run):
    runs = [*runs_of(make_run, "static", (1,)), make_run("other", "random", hours=2, seed=7)]
    with pytest.raises(InputError, match="share no seed with static; give runs of the same seeds, or name"):
        policies.paired(reading.read_runs(runs))
