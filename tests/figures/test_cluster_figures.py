"""Figures of simulated clusters show what their files hold."""

import pandas as pd
import pytest

from hpctrip.base.units import amount
from hpctrip.cluster.figures import cluster_time
from hpctrip.cluster.results import ClusterRun

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
    assert f"{amount(3.6e6 * kwh, 'joules')} in " in ended.out
    *_, waiting = cluster_time(ClusterRun.open(clusters / "powerflow.h5")).picture.axes
    assert not table["num_waiting"].any() and waiting.get_ylim() == (0, 1)


def test_a_federated_run_is_no_cluster_and_one_picture_holds_one(hpctrip, clusters, make_run):
    hpctrip("plot", "cluster_front", make_run("federated")).check_refused(["is not an hpctrip"])
    hpctrip("plot", "cluster_time", clusters).check_refused(["is not one cluster"])


CLAIM = """load,account,baseline,jct_s,kwh,eta,powerflow_jct_s,powerflow_kwh,ratio
1.0,off,fifo,7200,10,1,3600,9.5,2.0
2.0,off,fifo,7200,10,1,7200,9.5,1.0
1.0,always-on,fifo,7200,10,nan,nan,nan,nan
"""


def test_equal_energy_draws_a_panel_for_each_account_and_tells_the_ratios(hpctrip, tmp_path):
    table = tmp_path / "claim.csv"
    table.write_text(CLAIM.replace("nan", ""))
    hpctrip("plot", "cluster_equal_energy", table).check_refused(["claim.csv, line 4: powerflow_jct_s"])
    table.write_text(CLAIM.replace("1.0,always-on,fifo,7200,10,nan,nan,nan,nan\n", ""))
    ended = hpctrip("plot", "cluster_equal_energy", table, "--out", tmp_path / "picture.png")
    assert ended.code == 0 and (tmp_path / "picture.png").stat().st_size > 1000, ended.err
    assert ended.out.count("fifo") == 2 and "2.00" in ended.out.splitlines()[1]
    words = "Arrivals of jobs (times those of the trace)", "idle nodes switched off"
    hpctrip("plot", "cluster_equal_energy", table, "--out", tmp_path / "words.svg")
    assert all(text in (tmp_path / "words.svg").read_text() for text in words)
    table.write_text("load,account\n1,off\n")
    hpctrip("plot", "cluster_equal_energy", table).check_refused(["no column"])
