"""Accuracy against simulated time."""

import numpy as np
import pytest

from hpctrip.figures import curves
from hpctrip.figures.common import grouping, reading


def group_of(paths):
    (group,) = grouping.grouped(reading.read_runs(paths))
    return group


def test_the_mean_stands_where_every_seed_is_running_and_has_been_evaluated(make_run):
    slow = make_run("slow", k=(1, 1, 1), accuracy=(0.1, 0.2, 0.3), hours=2.0)
    fast = make_run("fast", k=(1, 1, 1), accuracy=(0.2, 0.4, 0.5), hours=1.0, seed=1)
    mean = curves.mean_of(group_of([slow, fast]))
    assert mean.hours.tolist() == [2, 3]  # from the slow one's first evaluation to the fast one's last
    assert mean.mean == pytest.approx([(10 + 40) / 2, (15 + 50) / 2])
    half = 12.7062 * np.std([10, 40], ddof=1) / np.sqrt(2)
    assert mean.low[0] == 0  # no accuracy is below it
    assert mean.high[0] == min(100, 25 + half)


def test_one_seed_is_its_own_mean_without_a_band(make_run):
    mean = curves.mean_of(group_of([make_run("a", accuracy=(0.2, float("nan"), 0.5))]))
    assert mean.hours.tolist() == [1, 3] and mean.mean == pytest.approx([20, 50])
    assert np.isnan(mean.low).all()


def test_it_prints_n_and_the_mean_and_writes_every_point(make_run, drawn, tmp_path):
    paths = [make_run(f"p{s}", seed=s, accuracy=(0.2, 0.3, 0.5 + s / 10)) for s in range(2)]
    lines = drawn("curves", *paths, make_run("r", "random"))
    assert "powertrip 2 3 55 % (0 % to 100 %) 55 % 3 (3 to 3)" in lines
    assert "random 1 3 50 % 50 % 3" in lines
    assert (tmp_path / "out.csv").read_text().splitlines()[:2] == [
        "label,seed,hours,accuracy_percent,low,high,n",
        "powertrip,0,1.0,20.0,,,1",
    ]


def test_a_seed_that_was_never_evaluated_leaves_no_mean(make_run):
    blind = make_run("blind", accuracy=(float("nan"),) * 3, seed=1)
    group = group_of([make_run("a"), blind])
    assert len(curves.mean_of(group).hours) == 0
    (_, line) = curves.plot(reading.read_runs([blind])).lines
    assert line.split()[1:] == ["1", "-", "none", "none", ">", "3"]
