"""Figures of simulated clusters show what their files hold."""

from pathlib import Path

import pandas as pd
import pytest

FEDERATED = Path(__file__).parents[1] / "record/version1.h5"

TINY = (
    "jobs.num_jobs=6",
    "jobs.span_s=1800",
    "jobs.median_s=900",
    "jobs.longest_s=1800",
    "cluster.num_nodes=4",
)


@pytest.fixture(scope="module")
def clusters(hpctrip, tmp_path_factory):
    """Results files of three schedulers."""
    folder = tmp_path_factory.mktemp("clusters")
    for scheduler in ("fifo", "srtf", "powerflow"):
        lines = [part for line in (*TINY, f"scheduler.kind={scheduler}") for part in ("-o", line)]
        assert hpctrip("cluster", *lines, "--out", folder / f"{scheduler}.h5").code == 0
    return folder


def test_the_front_holds_the_runs_that_no_other_beats(hpctrip, clusters, tmp_path):
    out = tmp_path / "front.png"
    ended = hpctrip("plot", "cluster_front", clusters, "--out", out)
    assert ended.code == 0 and out.stat().st_size > 3000, ended.err
    table = pd.read_csv(tmp_path / "front.csv")
    assert sorted(table["name"]) == ["fifo", "powerflow", "srtf"]
    best = table.sort_values(["mean_jct_h", "energy_kwh"]).iloc[0]
    assert best["on_front"] and table.loc[table["energy_kwh"].idxmin(), "on_front"]


def test_the_area_under_the_power_is_the_energy(hpctrip, clusters, tmp_path):
    ended = hpctrip("plot", "cluster_time", clusters / "powerflow.h5", "--out", tmp_path / "time.png")
    assert ended.code == 0, ended.err
    table = pd.read_csv(tmp_path / "time.csv")
    kwh = (
        table[["job_kw", "host_kw", "idle_kw"]].sum(axis=1) * (table["clock_h"] - table["clock_start_h"])
    ).sum()
    assert f"{kwh:.1f} kWh" in ended.out


def test_a_federated_run_is_no_cluster_and_one_picture_holds_one(hpctrip, clusters):
    hpctrip("plot", "cluster_front", FEDERATED).check_refused(["is not an hpctrip"])
    hpctrip("plot", "cluster_time", clusters).check_refused(["is not one cluster"])
