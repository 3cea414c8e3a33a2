"""Faults of the simulated world and diverging sites, in whole runs."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpctrip.learn.aggregate import largest
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.host import Host
from hpctrip.sim.rounds import Status

FAULTS = ("faults.deadline_s=18", "faults.mtbf_s=90", "faults.mttr_s=40", "faults.lost_fraction=0.25")

# recorded before there were faults
GOLDEN_CLOCK_S = [14.18095149996393, 35.72917149176942, 57.27739148357491]


def test_a_deadline_that_every_site_meets_changes_no_bit(trained):
    plain, bound = trained(), trained("faults.deadline_s=1e6")
    (only,) = diff(plain, bound)
    assert str(only) == "input: faults.deadline_s: absent | 1000000.0"


def test_the_clock_without_faults_has_its_recorded_values(trained):
    # not to the bit: NumPy's powers and logarithms round differently with the CPU's instruction set
    assert trained("workload.train_samples=400").rounds["clock_s"].tolist() == pytest.approx(
        GOLDEN_CLOCK_S, rel=1e-13
    )


def test_faults_are_recorded_per_site_and_only_who_arrives_is_trained(trained):
    run = trained("stop.max_rounds=8", *FAULTS)
    assert verify(run) == []
    cohorts, arrived = run.cohorts, run.cohorts["status"] == Status.ARRIVED
    assert {Status.ARRIVED, Status.LOST, Status.LATE} <= set(cohorts["status"])
    assert (cohorts["num_samples"] > 0).equals(arrived) and cohorts["train_loss"].notna().equals(arrived)
    assert (run.rounds["makespan_s"] <= 18).all()
    assert (run.rounds["num_arrived"] == arrived.groupby(cohorts["round"]).sum().to_numpy()).all()


@pytest.mark.mpi
def test_a_run_with_all_of_it_does_not_depend_on_the_number_of_ranks(launch, tiny, tmp_path, trained):
    """Faults, signals of the grid, budgets, kept optimisers; callbacks are called at rank 0 alone, once a round, with
    the seconds of all ranks and the joules of their machine."""
    lines = (
        *("stop.max_rounds=6", "train.keep_optimizer=true", "train.optimizer=adamw", "train.lr=0.002"),
        *("carbon={kind='daily', mean=100}", "accounts.site_max_energy='20 MJ'", *FAULTS),
    )
    alone = trained(*lines)
    assert alone.meta["params_digest"] != trained("stop.max_rounds=6", *FAULTS).meta["params_digest"]
    reports = ["callbacks.jsonl={}", "meter.assumed_w=40"]
    with_prometheus = importlib.util.find_spec("prometheus_client") is not None
    reports += ["callbacks.prometheus={}"] * with_prometheus
    options = [part for line in (*lines, *reports) for part in ("-o", line)]
    ended = launch(3, "run", tiny, *options, "--out", tmp_path / "three.h5")
    assert ended.code == 0, ended.err
    three = open_run(tmp_path / "three.h5")
    assert diff(alone, three) == []
    reported = [json.loads(line)["round"] for line in (tmp_path / "three.h5.jsonl").read_text().splitlines()]
    assert reported == [1, 2, 3, 4, 5, 6]
    if with_prometheus:
        (file,) = tmp_path.glob("*.prom")
        lines = [line.rpartition(" ") for line in file.read_text().splitlines()]
        totals = {name: float(value) for name, _, value in lines if not name.startswith("#")}
        joules = [value for name, value in totals.items() if name.startswith("hpctrip_energy_joules_total")]
        assert sum(joules) == pytest.approx(three.rounds["wall_j"].sum())
        train_s = [v for rank in "012" for name, v in totals.items() if _is_training_of(rank, name)]
        assert len(train_s) == 3 and 0 <= train_s[0] < min(train_s[1:])


def _is_training_of(rank, metric):
    return "phase_seconds_total" in metric and 'phase="train"' in metric and f'rank="{rank}"' in metric


@pytest.mark.parametrize("server", ["fedavg", "fedadam"])
def test_a_round_in_which_nobody_arrives_leaves_the_model_as_it_was(trained, server):
    run = trained(
        f"server.kind={server}", "faults.deadline_s=18", "faults.lost_fraction=1", "stop.max_rounds=2"
    )
    assert verify(run) == []
    assert run.rounds["makespan_s"].tolist() == [18, 18] and run.rounds["num_arrived"].tolist() == [0, 0]
    assert run.rounds["update_norm"].tolist() == [0, 0] and run.rounds["train_loss"].isna().all()
    assert run.rounds["accuracy"].nunique() == 1


def test_fedadam_starts_from_tau_also_where_nobody_arrived_in_the_first_round(trained):
    """tau far above the update: the first step is lr 0.1 u / ((sqrt(0.99) + 1) tau), in whatever round it is made."""
    lines = ("seed=2", "policy.kind=static", "policy.k=1", "stop.max_rounds=2")
    lines += ("faults.deadline_s=1e6", "faults.lost_fraction=0.5")
    plain = trained(*lines)
    assert plain.rounds["num_arrived"].tolist() == [0, 1]
    adam = trained(*lines, "server.kind=fedadam", "server.tau=1000.0", "server.lr=1000.0")
    expected = 0.1 / (0.99**0.5 + 1) * plain.rounds["update_norm"].iloc[1]
    assert adam.rounds["update_norm"].iloc[1] == pytest.approx(expected, rel=1e-3)


@pytest.fixture
def diverging(monkeypatch):
    """`diverging(sites)`: those sites send back updates that are not numbers."""
    honest = Host._compressed

    def install(sites):
        def sent(self, site, update, round):
            if site in sites:
                update.delta[0] = torch.nan
                update = replace(update, magnitude=float(largest(update.delta)))
            return honest(self, site, update, round)

        monkeypatch.setattr(Host, "_compressed", sent)

    return install


def test_a_diverging_site_stops_the_run_and_is_named(hpctrip, tiny, tmp_path, diverging):
    diverging({3})
    ended = hpctrip("run", tiny, "-o", "policy.kind=all", "--out", tmp_path / "run.h5")
    assert ended.code == 3 and "site 3, round 1" in ended.err


def test_a_diverging_site_can_be_left_out(trained, diverging):
    """The others then weigh as if they had been the whole cohort: compared with a run that loses exactly that site."""
    diverging({3})
    dropped = trained("policy.kind=all", "server.on_diverged=drop", "stop.max_rounds=1")
    assert verify(dropped) == []
    status = dropped.cohorts.set_index("site")["status"]
    assert status[3] == Status.DIVERGED and (status.drop(3) == Status.ARRIVED).all()
    assert dropped.rounds["num_arrived"].tolist() == [9]
    assert np.isnan(dropped.cohorts.set_index("site")["train_loss"][3])


def test_leaving_out_equals_never_having_arrived(trained, diverging, tmp_path):
    table = tmp_path / "outages.csv"
    table.write_text("site,start_s,end_s\n3,0,1e9\n")
    lines = ("policy.kind=all", "stop.max_rounds=2", "server.on_diverged=drop", "faults.deadline_s=1e6")
    without = trained(*lines, f"faults.outages='{table}'")
    diverging({3})
    dropped = trained(*lines)
    assert dropped.rounds["accuracy"].tolist() == without.rounds["accuracy"].tolist()
    assert dropped.rounds["update_norm"].tolist() == pytest.approx(
        without.rounds["update_norm"].tolist(), rel=1e-5
    )


def test_a_round_in_which_every_site_diverges_stops_in_any_case(hpctrip, tiny, tmp_path, diverging):
    diverging(set(range(10)))
    ended = hpctrip("run", tiny, "-o", "server.on_diverged=drop", "--out", tmp_path / "run.h5")
    assert ended.code == 3 and "round 1: the update of every site diverged" in ended.err


def test_deadlines_need_a_clock_that_is_known_beforehand(hpctrip, tiny):
    for command in ("check", "run", "plan"):
        ended = hpctrip(command, tiny, "-o", "faults.deadline_s=9", "-o", "timing.compute=measured")
        assert ended.code == 2 and "who misses a deadline" in ended.err
