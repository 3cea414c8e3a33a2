"""The figure of benchmarks/scaling.py's table."""

import importlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpctrip.figures.measured import scaling, tuning


@pytest.fixture
def table(monkeypatch, tmp_path):
    """What the benchmark makes of rounds that take a second on one host, and half of it and a tenth on two."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    benchmark = importlib.import_module("scaling")

    def launch(folder, num_hosts, num_sites, **size):
        whole = 1.0 if num_hosts == 1 or num_sites == 32 else 0.6
        phases = {f"{phase}_wall_s": [whole / 5] * 3 for phase in benchmark.PHASES}
        return pd.DataFrame({"wall_s": [0.9 * whole, whole, 1.1 * whole], "idle_fraction": 0.1} | phases)

    monkeypatch.setattr(benchmark, "launch", launch)
    return pd.concat([benchmark.scaling(kind, tmp_path, [1, 2], 16) for kind in ("strong", "weak")])


def test_it_draws_what_the_benchmark_writes(table, tmp_path, drawn):
    path = tmp_path / "measured.csv"
    table.to_csv(path, index=False)
    lines = drawn("scaling", path)
    assert "strong 2 16 0.6 0.57 to 0.63 3 0.83 20% 20% 20% 20%" in lines
    assert "weak 2 32 1 0.95 to 1.05 3 1.00 20% 20% 20% 20%" in lines


def test_labels_of_many_points_do_not_cover_each_other(table):
    many = pd.concat([table[table["kind"] == "strong"]] * 15).assign(hosts=range(1, 31))
    above, below = scaling(many).picture.axes
    assert len(above.texts) <= 8 and len(below.get_xticks()) <= 8
    trials = pd.DataFrame({"setting": "s", "rounds": 3, "on_front": "false", "best_by": ["time", *[""] * 29]})
    rates = {"samples_per_second": np.arange(30.0), "samples_per_joule": np.arange(30.0)}
    for number, labels in ((30, ["1"]), (3, ["1", "2", "3"])):
        (axes,) = tuning(trials.assign(**rates)[:number]).picture.axes
        assert [text.get_text() for text in axes.texts] == labels


def change_table(**columns):
    return lambda table: table.assign(**columns).to_csv(index=False)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda table: table.drop(columns="round_q1_s").to_csv(index=False), "has no column 'round_q1_s'"),
        (lambda table: table.iloc[:0].to_csv(index=False), "has no rows"),
        (change_table(kind="odd"), "kind: is neither strong nor weak everywhere"),
        (change_table(round_s="long"), "measured.csv, line 2: round_s = 'long' is not a finite number"),
    ],
)
def test_a_table_means_what_it_says_or_is_refused_in_one_line(table, change, problem, tmp_path, hpctrip):
    path = tmp_path / "measured.csv"
    path.write_text(change(table))
    hpctrip("plot", "scaling", path).check_refused([problem])
