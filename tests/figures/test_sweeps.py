"""Figs 6, 7, 8, 11, 13, 14: what is drawn of sweeps over k and over other keys."""

import numpy as np
import pandas as pd
import pytest

from hpctrip.base.stats import Times
from hpctrip.figures.common import reading, style
from hpctrip.figures.policies import policies_by
from hpctrip.figures.sweeps import best_in_words, equal_power, gain, lowest, of_each_k, sweep
from hpctrip.record.reader import InputError


@pytest.fixture
def fixed(make_run):
    """A static run of k sites, one hour a round times `hours`, with these accuracies."""

    def make(k, seed=0, hours=1.0, accuracy=(0.2, 0.3, 0.5), **settings):
        name = f"static-{k}-{seed}-{hours}"
        keys = {"policy_keys": {"k": k}, "seed": seed, "hours": hours, "accuracy": accuracy} | settings
        return make_run(name, "static", k=(k,) * len(accuracy), **keys)

    return make


def reached(*hours):
    """Times of seeds 0, 1, ..., all of which reached the target."""
    return Times.of((seed, h, True, 0.5) for seed, h in enumerate(hours))


def test_sweep_draws_means_and_bounds_and_names_the_best_k_and_what_it_leaves_out(drawn, fixed, make_run):
    paths = [fixed(4, seed=seed, hours=hours / 3) for seed, hours in enumerate((1.0, 2.0, 3.0))]
    paths += [fixed(6, hours=2.0), fixed(2, accuracy=(0.2, 0.3))]
    dynamic = make_run("dynamic")
    lines = drawn("sweep", *paths, dynamic)
    assert lines[:5] == [
        f"left out: {dynamic}, policy powertrip",
        "k TTA h (95 % interval) seeds reached best accuracy",
        "2 > 2 1 0 0.3000",  # never arrived: the time it spent, and never the best
        "4 2 (cut at 0, to 4.48) 3 3 0.5000",  # 4.3027 / sqrt(3), standard deviation 1; no time is below 0
        "6 6 1 1 0.5000",
    ]
    assert lines[5].startswith(
        "best k (Eq. 9): 4 has the lowest mean, 2 (cut at 0, to 4.48) h; not significantly different from k = 6"
    )


def test_the_axis_of_a_sweep_reaches_above_every_seed_and_every_missed_target(fixed):
    slow = {"hours": 9.0, "accuracy": (0.2, 0.3)}
    paths = [fixed(2, **slow), fixed(4), fixed(4, seed=1), fixed(6), fixed(6, seed=1, hours=4.0)]
    (axes,) = sweep(reading.read_runs(paths)).picture.axes
    most = {2: 18.0, 4: 3.0, 6: 12.0}  # hours
    drawn = {k: max(y for line in axes.lines for x, y in line.get_xydata() if x == k) for k in most}
    assert drawn == pytest.approx(most)
    assert axes.get_ylim()[0] == 0 and axes.get_ylim()[1] > 1.1 * 18
    (axes,) = sweep(reading.read_runs(paths[1:])).picture.axes
    assert axes.get_ylim()[1] > 12


def test_sweep_refuses_two_sweeps_at_once(fixed):
    runs = reading.read_runs([fixed(4), fixed(4, hours=2.0, update_bytes=1e9)])
    with pytest.raises(InputError, match=r"k = 4 is both .* and .*; give one sweep at a time"):
        of_each_k(runs)


def test_sweep_calls_no_k_best_from_which_others_are_not_told_apart():
    apart = {2: reached(3, 3.1, 3.2), 4: reached(1, 1.1, 1.2), 6: reached(1.1, 1.2, 1.1)}
    assert lowest(apart) == [4, 6]
    assert lowest({k: apart[k] for k in (2, 4)}) == [4]
    words = best_in_words([4, 6], {k: apart[k] for k in (4, 6)})
    assert words.endswith("; not significantly different from k = 6 (all others that reached the target)")


def test_sweep_says_in_the_picture_when_no_k_is_best_and_how_many_seeds_there_are(fixed):
    paths = [fixed(k, hours=1 + (k + seed) / 3, seed=seed) for k in (2, 3) for seed in (0, 1)]
    runs = reading.read_runs(paths)
    for some, reason, seeds in (
        (
            runs,
            "not significantly different from k = 3 (all others that reached the target)",
            "n = 2 seeds a k",
        ),
        (runs[::2], "one seed has no interval, so nothing says that it is best", "n = 1 seed a k"),
    ):
        heading = " ".join(sweep(some).picture.get_suptitle().split())
        assert reason in heading and seeds in heading


def test_the_speed_up_is_the_geometric_mean_over_seeds_of_how_many_times_sooner(fixed, drawn, tmp_path):
    paths = [fixed(2, hours=2.0), fixed(2, seed=1, hours=4.0), fixed(4), fixed(4, seed=1)]
    lines = drawn("equal_power", *paths)
    assert lines[0].endswith("speed-up over k = 2")
    assert lines[1].startswith("2 9 (") and lines[1].endswith("1 (1 to 1)")
    mean, half = np.sqrt(2 * 4), 12.7062 * np.log(4 / 2) / 2  # 6 h / 3 h and 12 h / 3 h
    assert lines[2].endswith(f"{mean:.3g} ({mean / np.exp(half):.3g} to {mean * np.exp(half):.3g})")
    table = pd.read_csv(tmp_path / "out.csv").set_index("k")
    assert (
        table.loc[4, "speed_up"] == pytest.approx(mean)
        and table.loc[4, "speed_up_low"] > 0
        and table.loc[4, "mean_h"] == 3
    )


def test_a_cohort_that_misses_the_target_with_a_seed_has_no_speed_up(fixed, drawn):
    missed = (0.2, 0.3, 0.4)
    paths = [fixed(2), fixed(2, seed=1), fixed(4), fixed(4, seed=1, hours=0.5, accuracy=missed)]
    lines = drawn("equal_power", *paths)
    assert lines[2] == "4 > 2.25 2 1 0.4500 -"


def test_an_empty_panel_says_why_and_a_line_of_one_point_is_seen(fixed):
    missed = {"accuracy": (0.2,)}
    runs = reading.read_runs([fixed(2, **missed), fixed(4, **missed)])
    _, hours, speed = equal_power(runs).picture.axes
    assert [text.get_text().replace("\n", " ") for axes in (hours, speed) for text in axes.texts] == [
        "no k reached the target with every seed",
        "k = 2 did not reach the target with every seed",
    ]
    (axes,) = gain(runs).picture.axes
    assert [line.get_marker() for line in axes.lines if len(line.get_xdata()) == 1] == ["o"]


@pytest.mark.parametrize(("ks", "labels"), [((2, 4, 6), 3), (range(1, 13), 6)])
def test_best_accuracies_are_written_where_they_do_not_cover_each_other(fixed, ks, labels):
    (axes,) = sweep(reading.read_runs([fixed(k, accuracy=(0.2, 0.3)) for k in ks])).picture.axes
    assert [text.get_text() for text in axes.texts] == ["30 %"] * labels


def test_one_size_of_cohort_is_no_sweep(fixed):
    runs = reading.read_runs([fixed(2)])
    for draw in (equal_power, gain):
        with pytest.raises(InputError, match="the runs: are all of k = 2; give those of several k"):
            draw(runs)


def test_the_gain_is_taken_round_by_round_from_the_same_seed(fixed, drawn, tmp_path):
    paths = [
        fixed(2, accuracy=(0.1, 0.2, 0.3)),
        fixed(2, seed=1, accuracy=(0.2, 0.2)),
        fixed(4, accuracy=(0.2, 0.3, 0.4)),
        fixed(4, seed=1, accuracy=(0.5, 0.6, 0.7)),
        fixed(4, seed=2),  # nothing to compare it with
    ]
    lines = drawn("gain", *paths)
    assert (
        lines[1] == "4 2 2 +22.5 -"
    )  # (10 + 30) / 2 and (10 + 40) / 2; seed 1 of k = 2 ended after two rounds
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["gain_points"].tolist() == pytest.approx([20, 25])
    assert table["n"].tolist() == [2, 2] and table["round"].tolist() == [1, 2]


def test_of_many_sizes_the_largest_and_about_half_and_a_quarter_of_it_are_drawn(fixed):
    assert style.sizes_to_draw([20, 30, 40, 50, 60, 70, 80, 90, 100]) == [20, 50, 100]
    runs = reading.read_runs([fixed(k) for k in range(1, 10)])
    drawn = gain(runs)
    assert sorted(set(drawn.table["k"])) == [2, 3, 4, 5, 6, 7, 8, 9]
    for picture, sizes in ((drawn.picture, (2, 4, 9)), (equal_power(runs).picture, (1, 2, 4, 9))):
        lines = [line for line in picture.axes[0].get_lines() if str(line.get_label()).startswith("k = ")]
        assert [line.get_label().partition(" (")[0] for line in lines] == [f"k = {k}" for k in sizes]
        assert len({line.get_linestyle() for line in lines}) == len(lines)  # not by colours alone


def test_seeds_that_differ_have_no_gain(fixed):
    with pytest.raises(InputError, match="no seed in common"):
        gain(reading.read_runs([fixed(2), fixed(4, seed=1)]))


def test_policies_stand_side_by_side_at_every_value_of_the_key(make_run, drawn, tmp_path):
    paths = [
        make_run(f"{policy}-{gb}", policy, hours=hours * gb, update_bytes=gb * 1e9)
        for policy, hours in (("powertrip", 1.0), ("random", 2.0))
        for gb in (2, 1)
    ]
    lines = drawn("policies_by", *paths)
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1", "GB", "powertrip"],
        ["1", "GB", "random"],
        ["2", "GB", "powertrip"],
        ["2", "GB", "random"],
    ]
    assert lines[4] == "2 GB random 12 1 1 50 % less time"
    assert pd.read_csv(tmp_path / "out.csv")["ratio"].tolist() == [1, 2, 1, 2]


def test_a_seed_that_missed_the_target_is_no_dot_and_the_key_says_so(make_run):
    missed = (0.2, 0.3, 0.4)
    paths = [
        make_run("a"),
        make_run("b", seed=1, accuracy=missed),
        make_run("c", "random"),
        make_run("d", "random", seed=1),
    ]
    picture = policies_by(reading.read_runs(paths)).picture
    marks = [line.get_marker() for line in picture.axes[0].get_lines() if line.get_color() == "black"]
    assert sorted(marks) == ["^", "o", "o", "o"]
    (legend,) = picture.legends
    names = {text.get_text() for text in legend.get_texts()}
    assert names == {"powertrip", "random", "one seed", "one seed, not reached"}
    heading = picture.get_suptitle().replace("\n", " ")
    assert heading.endswith("n = 2 seeds a point; open: at least")
    assert picture.axes[0].get_xlabel() == "Update size"


def test_a_policy_that_arrives_with_more_of_its_seeds_stands_before_a_faster_one(make_run, drawn):
    missed = (0.2, 0.3, 0.4)
    often = [make_run(f"a{seed}", hours=3.0, seed=seed) for seed in (0, 1)]
    seldom = [make_run(f"b{seed}", "random", seed=seed, accuracy=missed) for seed in (1, 2)]
    paths = [*often, make_run("a2", hours=3.0, seed=2, accuracy=missed), make_run("b0", "random"), *seldom]
    lines = drawn("policies_by", *paths)
    assert [line.split()[2] for line in lines[1:]] == ["powertrip", "random"]


def test_runs_with_targets_of_their_own_are_compared_within_a_value(make_run, drawn):
    speech = {"workload": {"kind": "speech"}}
    emnist = {"workload": {"kind": "emnist"}}
    paths = [
        make_run("a", tables=emnist, target=0.45),
        make_run("b", "random", tables=emnist, target=0.45, hours=1.25),
        make_run("c", tables=speech, target=0.25),
        make_run("d", "random", tables=speech, target=0.55),
    ]
    lines = drawn("policies_by", *paths[:3], "--by", "workload.kind")
    assert [line.split()[0] for line in lines[1:]] == ["emnist", "emnist", "speech"]
    assert lines[2].endswith("20 % less time") and lines[3].startswith("speech powertrip 2 1 1")
    with pytest.raises(InputError, match="no common target accuracy"):
        policies_by(reading.read_runs(paths), by="workload.kind")


def test_a_key_that_the_runs_lack_is_named(make_run):
    with pytest.raises(InputError, match=r"has no single value of the key 'no\.such'"):
        policies_by(reading.read_runs([make_run("a")]), by="no.such")
