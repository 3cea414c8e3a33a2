"""The script that fits constants to the bars of a figure, on tables made by hand."""

import math

import calibrate
import numpy as np
import pandas as pd
import pytest

BARS = {"PowerTrip": 1.0, "static": 2.0, "random": 3.0}


def point(*log_ratio, at_least=(), **constants):
    bounds = np.array([place in at_least for place in range(len(log_ratio))])
    return calibrate.Point(constants, np.exp(log_ratio), bounds, np.ones(len(log_ratio)))


def test_the_misfit_is_one_absolute_time_and_the_ratios_of_the_others_to_it():
    found = point(0.5, 0.7, 0.1)
    assert found.is_exact and found.misfit == pytest.approx(0.5**2 + 0.2**2 + 0.4**2)
    assert found.error == pytest.approx(math.sqrt(found.misfit / 3))


def test_a_bar_that_did_not_arrive_counts_where_even_its_bound_is_too_long():
    assert point(0.0, 0.0, -0.4, at_least=[2]).misfit == 0
    assert point(0.0, 0.0, 0.4, at_least=[2]).misfit == pytest.approx(0.16)
    assert str(point(0.0, 0.4, at_least=[1])).startswith("at least 0.283")
    # the reference took longer: as long as the paper says, then
    assert point(-0.3, 0.0, at_least=[0]).misfit == 0
    assert point(0.3, 0.0, at_least=[0]).misfit == pytest.approx(0.18)


def test_the_region_of_a_constant_is_that_of_its_profile():
    best = point(0.2, 0, 0, 0, 0, 0, 0, a="1", b="1", c="1", d="1")
    assert calibrate.region(best) == pytest.approx(best.misfit * (1 + 3.1824**2 / 3), rel=1e-4)


def rows_of(speed, clock, factor, num_reached=2):
    for label, hours in BARS.items():
        yield {
            "variant": f"{speed}, {clock}, {label}",
            **{"speed": speed, "clock": clock, "policy": label, "target_accuracy": 0.4},
            "mean_s": 3600 * hours * (factor if label == "PowerTrip" else 1),
            **{"num_seeds": 2, "num_reached": num_reached},
        }


@pytest.fixture
def fit(script, tmp_path):
    """`fit(rows, *options)`: run the script on a study's table of two constants and three bars; with speed = fast the
    bars are those of the paper."""

    def run(rows, *options):
        table, hours = tmp_path / "table.csv", tmp_path / "hours.csv"
        pd.DataFrame(rows).to_csv(table, index=False)
        pd.DataFrame({"label": BARS.keys(), "hours": BARS.values()}).to_csv(hours, index=False)
        return script(calibrate.main, table, "--hours", hours, *options)

    return run


def test_the_best_point_and_excluded_values_are_printed_and_written(fit, tmp_path):
    rows = [*rows_of("fast", "a", 1.05), *rows_of("fast", "b", 1.1), *rows_of("slow", "a", 30.0)]
    ended = fit(rows)
    assert ended.code == 0, ended.err
    assert "best of 3 points: error 0.049 with speed = fast, clock = a" in ended.out
    verdicts = pd.read_csv(tmp_path / "profile.csv").set_index(["constant", "value"])["verdict"]
    assert verdicts.to_dict() == {
        ("speed", "fast"): "best",
        ("speed", "slow"): "excluded",
        ("clock", "a"): "best",
        ("clock", "b"): "not excluded",
    }
    points = pd.read_csv(tmp_path / "points.csv")
    assert points["PowerTrip h"].tolist() == [1.05, 1.1, 30] and list(points["is"]) == ["exact"] * 3


def test_a_point_that_did_not_reach_a_bar_is_not_the_best_one(fit):
    rows = [*rows_of("fast", "a", 1.0, num_reached=1), *rows_of("slow", "a", 1.2)]
    ended = fit(rows)
    assert "best of 2 points: error 0.182 with speed = slow, clock = a" in ended.out.replace("0.183", "0.182")


def test_points_without_all_bars_are_left_out_and_none_is_refused(fit):
    rows = [*rows_of("fast", "a", 1.0)][:2]
    ended = fit(rows)
    assert ended.code == 2 and "has no point with a finished run of every bar" in ended.err
    ended = fit(rows, "--bars", "nothing")
    assert ended.code == 2 and "nothing" in ended.err and len(ended.err.splitlines()) == 1
