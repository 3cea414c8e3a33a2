"""Energy, carbon and money in whole runs: recorded, replayed, resumed, the same on any number of ranks, and printed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpctrip.base.units import amount
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.replay import NotReplayable, replay
from hpctrip.sim.rounds import History

ROUNDS = "stop.max_rounds=4"


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """-o lines of a world with measured hardware, power traces, outages, two zones of carbon, an objective and a budget
    of each site."""
    folder = tmp_path_factory.mktemp("signals")
    for name, grams in (("NO", 30), ("ES", 200)):
        rows = [f"2022-01-01 0{h}:00,{grams + 10 * h}\n" for h in range(6)]
        (folder / f"{name}.csv").write_text("time,per_kwh\n" + "".join(rows))
    (folder / "gpu.csv").write_text("watts,samples_per_second\n100,40\n200,60\n400,80\n")
    return (
        "power.kind=trace",
        f"throughput={{kind='curve', path='{folder / 'gpu.csv'}', num_gpus=20, host_w=50}}",
        f"carbon={{kind='csv', path='{folder}/??.csv', start='2022-01-01T00:55'}}",
        "price={kind='daily', mean=0.2, swing=0.1}",
        "policy.objective={kind='deadline', deadline_s='2 h'}",
        "faults={deadline_s='10 min', mtbf_s='20 min', mttr_s='5 min', late_fraction=0.2}",
        "timing.seconds_per_sample=3",
        "accounts.site_max_energy='2 MJ'",
        "workload.train_samples=400",
        ROUNDS,
    )


@pytest.fixture(scope="module")
def run(lines, trained):
    return trained(*lines)


def folder_of(lines):
    return lines[1].split("path='")[1].rpartition("/")[0]


def test_a_run_records_what_every_site_took(run):
    assert verify(run) == []
    rounds, cohorts = run.rounds, run.cohorts
    assert (rounds["energy_j"] > 0).all() and (rounds["carbon_g"] > 0).all() and (rounds["cost"] > 0).all()
    totals = (
        cohorts.groupby("round")[["compute_energy_j", "wait_energy_j", "comm_energy_j"]].sum().sum(axis=1)
    )
    assert rounds["energy_j"].to_numpy() == pytest.approx(totals.to_numpy())
    assert set(run.sites["carbon_zone"]) == {"ES", "NO"}
    assert run.meta["synthetic_signals"] == ["price"]
    assert [source for source in run.meta["sources"] if source.startswith(("carbon.path", "throughput.path"))]
    out = cohorts[cohorts["status"] == 1]
    assert (out[["compute_energy_j", "wait_energy_j", "comm_energy_j"]] == 0).all(axis=None)


def test_the_moment_at_which_dated_series_begin_is_recorded_and_shown(run, lines, hpctrip, tiny):
    (moment,) = run.meta["simulated_start"]
    assert moment == "carbon 2022-01-01T00:55:00 UTC, data until 2022-01-01T06:00:00"
    assert moment in " ".join(hpctrip("show", run.path).out.split())
    checked = hpctrip("check", tiny, *[part for line in lines for part in ("-o", line)])
    assert f"# simulated time begins: {moment}\n" in checked.out


def test_sites_that_have_spent_their_budget_train_no_more(run):
    cohorts = run.cohorts
    taken_j = cohorts[["compute_energy_j", "wait_energy_j", "comm_energy_j"]].sum(axis=1)
    before_j = taken_j.groupby(cohorts["site"]).cumsum() - taken_j
    assert taken_j.groupby(cohorts["site"]).sum().max() >= 2e6
    assert (before_j[cohorts["status"] == 0] < 2e6).all()


def test_it_is_replayed_from_its_own_file_and_the_files_that_it_names(run, lines):
    assert replay(run, data=[folder_of(lines)]) == []
    with pytest.raises(NotReplayable, match="it needs "):
        replay(run)


def test_a_forged_energy_is_found(run, lines, tmp_path):
    from test_replay import written_anew

    rows = list(run.history().rows)
    cohort = replace(rows[1].cohort, compute_energy_j=0.9 * rows[1].cohort.compute_energy_j)
    rows[1] = replace(rows[1], cohort=cohort)
    forged = written_anew(run, tmp_path / "sums.h5", History(tuple(rows)))
    assert "compute_energy_j is" in str(verify(forged)[0])
    total = float(cohort.compute_energy_j.sum())
    rows[1] = replace(
        rows[1],
        compute_energy_j=total,
        energy_j=total + rows[1].wait_energy_j + rows[1].comm_energy_j,
    )
    forged = written_anew(run, tmp_path / "all.h5", History(tuple(rows)))
    assert verify(forged) == []
    assert "compute_energy_j is" in str(replay(forged, data=[folder_of(lines)])[0])


def test_a_resumed_run_ends_with_the_same_bits(run, lines, hpctrip, tiny, tmp_path):
    half = tmp_path / "half.h5"
    options = [part for line in lines for part in ("-o", line.replace(ROUNDS, "stop.max_rounds=2"))]
    assert hpctrip("run", tiny, *options, "--out", half).code == 0
    assert hpctrip("resume", half, "-o", ROUNDS).code == 0
    assert diff(run, open_run(half)) == []


def test_energy_and_carbon_are_printed_at_the_end_and_by_show(hpctrip, tiny, tmp_path):
    path = tmp_path / "run.h5"
    options = ["-o", "carbon={kind='constant', per_kwh=100}", "-o", "accounts.currency=GBP"]
    ended = hpctrip("run", tiny, *options, "--out", path)
    assert ended.code == 0
    energy_j = open_run(path).rounds["energy_j"].sum()
    text = f"{amount(energy_j, 'joules')} simulated: computing "
    assert f"energy: {text}" in ended.out and text in hpctrip("show", path).out
    assert f"{amount(energy_j / 3.6e4, 'grams')} CO2 (synthetic)" in ended.out
    assert "GBP" not in ended.out  # no price is known


def test_a_budget_is_the_recorded_reason(trained):
    run = trained('stop.max_energy="1 kWh"', "stop.max_rounds=50")
    spent = run.rounds["energy_j"].cumsum()
    assert run.meta["stop_reason"] == "max_energy = 1 kWh"
    assert spent.iloc[-2] < 3.6e6 <= spent.iloc[-1]


def test_a_run_ends_when_nobody_has_a_budget_left_and_stays_so_when_it_is_resumed(trained, hpctrip):
    run = trained("policy.kind=all", "accounts.site_max_energy='1 J'", "stop.max_rounds=50")
    assert run.meta["stop_reason"] == "nobody left to ask: site_max_energy = 1 J" and len(run.rounds) == 1
    assert hpctrip("resume", run.path).code == 0
    again = open_run(run.path)
    assert diff(run, again) == [] and again.meta["stop_reason"] == run.meta["stop_reason"]


def test_hardware_and_signals_change_neither_clock_nor_model(trained):
    """But for what the power is worth: a bill is written, no more."""
    plain = trained()
    billed = trained("carbon={kind='daily', mean=100}", "throughput.num_gpus=8", "accounts.waiting=released")
    assert plain.meta["params_digest"] == billed.meta["params_digest"]
    assert plain.rounds["clock_s"].equals(billed.rounds["clock_s"])
    ratio = billed.rounds["compute_energy_j"] / plain.rounds["compute_energy_j"]
    assert ratio.to_numpy() == pytest.approx(np.full(len(ratio), 0.08))
