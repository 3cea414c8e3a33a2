"""Files that hpctrip 0.1 wrote (format version 1): whatever reads results today reads them, under today's names.

`version1.h5` is inputs/smoke.toml over three rounds, written by that program; `version1_capped.h5` is the same with
throughput.kind = "capped", under which its columns called power held throughput.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import pandas as pd
import pytest

from hpctrip.figures import FIGURES
from hpctrip.record.diff import diff
from hpctrip.record.older import in_force
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

HERE = Path(__file__).parent


@pytest.fixture(params=["version1", "version1_capped"])
def old(request, tmp_path):
    """A copy of each of the files."""
    return shutil.copy(HERE / f"{request.param}.h5", tmp_path / "old.h5")


@pytest.fixture
def linear(tmp_path):
    return shutil.copy(HERE / "version1.h5", tmp_path / "old.h5")


@pytest.fixture
def capped(tmp_path):
    return shutil.copy(HERE / "version1_capped.h5", tmp_path / "old.h5")


def test_it_opens_under_todays_names(old):
    with h5py.File(old) as file:
        stored = {name: file["sites"][name][()] for name in ("compute_s", "delay_s", "power_fraction")}
    run = open_run(old)
    assert run.format_version == 1 and len(run.rounds) == len(run.history()) == 3
    assert not {"compute_s", "delay_s"} & set(run.sites)
    assert run.sites["work_s"].tolist() == stored["compute_s"].tolist()
    assert run.sites["comm_s"].tolist() == stored["delay_s"].tolist()
    assert run.sites["throughput_fraction"].tolist() == stored["power_fraction"].tolist()
    assert run.sites.attrs["units"]["work_s"] == run.sites.attrs["units"]["comm_s"] == "s"
    assert run.schema_faults() == []


def test_with_linear_throughput_the_power_is_known(linear):
    run = open_run(linear)
    for frame in (run.sites, run.cohorts):
        assert frame["power_fraction"].between(0.1, 1).all()
        assert frame["power_fraction"].equals(frame["throughput_fraction"].rename("power_fraction"))
    assert run.cohorts["seen_power_fraction"].equals(
        run.cohorts["power_fraction"].rename("seen_power_fraction")
    )


def test_with_another_throughput_the_power_is_not_known(capped):
    run = open_run(capped)
    assert run.sites["power_fraction"].isna().all() and run.cohorts["power_fraction"].isna().all()
    assert run.cohorts["seen_power_fraction"].isna().all()
    assert run.cohorts["throughput_fraction"].between(0.1, 1).all()
    assert run.cohorts["seen_throughput_fraction"].tolist() == run.cohorts["throughput_fraction"].tolist()


def test_its_checksums_hold_and_an_edit_is_noticed(old):
    assert verify(open_run(old)) == []
    with h5py.File(old, "r+") as file:
        file["rounds_sites/power_fraction"][0] += 0.01
    assert [str(fault).split(":")[1].strip() for fault in verify(open_run(old))] == ["/rounds_sites"]


def test_what_today_decides_alike_is_confirmed(linear, hpctrip):
    ended = hpctrip("verify", linear)
    assert (ended.code, ended.out) == (0, f"{linear}: ok\n")


def test_what_today_decides_differently_is_not_called_wrong(capped, hpctrip):
    """The score weighed throughput where it weighs power today: the second cohort has another order."""
    ended = hpctrip("verify", capped)
    assert ended.code == 0
    assert (
        f"{capped}: ok, but not replayed: an older hpctrip wrote it, whose rules were others: " in ended.out
    )
    assert "round 2: its cohort" in ended.out and "nan" not in ended.out


def test_show_export_and_diff_take_it(old, hpctrip, tmp_path):
    shown = hpctrip("show", old)
    assert shown.code == 0 and "policy" in shown.out and "0.1.0" in shown.out
    assert hpctrip("export", old, tmp_path / "csv").code == 0
    cohorts = pd.read_csv(tmp_path / "csv" / "rounds_sites.csv")
    assert {"power_fraction", "throughput_fraction"} <= set(cohorts)
    assert cohorts["throughput_fraction"].notna().all()
    ended = hpctrip("diff", old, old)
    assert ended.code == 0 and ended.out.startswith("equal: 3 rounds")


def test_diff_of_both_names_the_input_that_differs(tmp_path):
    lines = [*map(str, diff(*(open_run(HERE / name) for name in ("version1.h5", "version1_capped.h5"))))]
    assert lines[:2] == [
        "input: throughput.kind: 'linear' | 'capped'",
        "input: throughput.gpu: absent | 'V100'",
    ]
    assert any(line.startswith("round 1: ") for line in lines)


def test_it_joins_a_table_of_runs_of_today(old, trained, hpctrip, tmp_path):
    new = trained("stop.max_rounds=1")
    ended = hpctrip("merge", tmp_path / "runs.h5", old, new.path)
    assert ended.code == 0, ended.err
    table = pd.read_csv(tmp_path / "runs.csv")
    assert len(table) == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("figure", ["summary", "network", "cohort_size"])
def test_its_figures_are_drawn(figure, old, tmp_path, capsys):
    out = tmp_path / "page.png"
    assert FIGURES[figure].main([str(old), "--out", str(out)]) == 0
    assert "Warning" not in capsys.readouterr().err
    assert out.stat().st_size > 1000


def test_a_goodput_from_before_it_weighed_work_did_not_weigh_it():
    older = {"policy.kind": "goodput", "workload.kind": "of their own"}
    assert in_force(older)["policy.weigh_work"] is False
    assert in_force(older | {"policy.weigh_work": True})["policy.weigh_work"] is True
    assert "policy.weigh_work" not in in_force(older | {"policy.kind": "powertrip"})
