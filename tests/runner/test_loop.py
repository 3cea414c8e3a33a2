"""Whole runs in one process: the curve, the stop rules, and every option that changes what a round does.

Wherever it makes no difference to the test, a run is three rounds of ten sites; its numbers say nothing about learning.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from dataclasses import is_dataclass
from itertools import zip_longest
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import hpctrip.cli.main  # noqa: F401 - importing it is no part of what a run enters
from hpctrip.base.errors import DivergedError, HpctripError, InputError
from hpctrip.learn.compression import COMPRESSIONS
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.partition import PARTITIONS
from hpctrip.learn.server import SERVERS
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.placement import Assignment, cut
from hpctrip.record import writer
from hpctrip.record.verify import verify
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.runner.loop import Results, train
from hpctrip.runner.replay import replay
from hpctrip.runner.signals import Signals
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State

GOLDEN = Path(__file__).with_name("golden") / "tiny_powertrip.txt"
TRACES = Path(__file__).parents[2] / "traces" / "synthetic"
UPDATE = "HPCTRIP_UPDATE_GOLDEN"
FIXED = ("policy.kind=goodput", "power.kind=constant")
FULL = ("workload.train_samples=400", "workload.test_samples=200")
ADAPTIVE = (*FIXED, "policy.local_work=adaptive")
MOST_RECORDS, MOST_FILES = 16, 21
STARTS = re.compile(r".*/hpctrip/((cli|runner|ranks|record)/.*\.py)")
"""The files through which a run is started and recorded, besides those of what it simulates and trains."""


@pytest.fixture(scope="module")
def tiny_run(trained):
    """The scenario as it is."""
    return trained()


@pytest.fixture
def sound(trained):
    """`sound(*lines) -> Run`: a finished run whose file passes every check of `verify`."""

    def run(*lines):
        made = trained(*lines)
        assert verify(made) == [] and made.meta["status"] == "finished"
        assert np.isfinite(made.rounds["train_loss"]).all() and (made.rounds["update_norm"] > 0).all()
        return made

    return run


# The golden curve


def curve(run):
    """One line a round: round, clock, cohort size, correct of seen, cohort in the policy's order."""
    sites = run.cohorts.groupby("round")["site"].apply(list)
    return [
        f"{row.round:5d} {row.clock_s:14.9g} {row.num_sites:3d} {row.eval_correct:5d}/{row.eval_seen}  "
        + ",".join(map(str, sites[row.round]))
        for row in run.rounds.itertuples()
    ]


def test_the_curve_is_the_golden_one(trained):
    """Clock and cohorts to nine digits. The model may differ in the last bit between CPUs and versions of torch, fonts
    between versions of Pillow, so a few of 200 samples may fall on the other side."""
    actual = curve(trained(*FULL, "stop.max_rounds=8", "train.lr=0.05", "train.local_epochs=3"))
    if os.environ.get(UPDATE):
        head = (
            f"# tests/runner/test_loop.py, written with {UPDATE}=1\n# round clock_s k correct/seen cohort\n"
        )
        GOLDEN.write_text(head + "\n".join(actual) + "\n")
    golden = [line for line in GOLDEN.read_text().splitlines() if not line.startswith("#")]
    assert len(actual) == len(golden)
    for line, expected in zip(actual, golden, strict=True):
        *clock, correct, cohort = line.split()
        *expected_clock, expected_correct, expected_cohort = expected.split()
        assert (clock, cohort) == (expected_clock, expected_cohort)
        (right, seen), (expected_right, expected_seen) = correct.split("/"), expected_correct.split("/")
        assert seen == expected_seen and abs(int(right) - int(expected_right)) <= 6


def test_a_seed_repeats_itself_and_another_differs(tiny_run, trained):
    assert trained().meta["params_digest"] == tiny_run.meta["params_digest"]
    other = trained("seed=1")
    assert other.meta["params_digest"] != tiny_run.meta["params_digest"]
    assert other.sites["distance_m"].tolist() != tiny_run.sites["distance_m"].tolist()


def test_the_file_says_how_it_was_made(tiny_run):
    meta = tiny_run.meta
    made_by = {"scenario": "tiny", "policy": "powertrip", "engine": "sequential", "transport": "serial"}
    assert meta.items() >= made_by.items()
    assert meta["synthetic_data"] and meta["synthetic_power"] and "synthetic" in meta["data_source"]
    assert meta["update_bytes"] == 1.5e9 and meta["num_params"] > 100_000
    assert tiny_run.sites["num_samples"].sum() == 200


def test_a_round_passes_through_few_kinds_of_records_and_its_start_through_few_files(trained):
    """A record that only carries values from one function to the next is better its arguments. The files are those
    of whose functions rank 0 calls any before the first round."""
    records, files, rounds = set(), set(), 0

    def profile(frame, event, _):
        nonlocal rounds
        code = frame.f_code
        rounds += event == "call" and code.co_qualname == "Simulation.begin"
        is_function = event == "call" and code.co_flags & inspect.CO_NEWLOCALS
        if is_function and not rounds and (match := STARTS.fullmatch(code.co_filename)):
            files.add(match[1])
        if event == "call" and rounds == 2 and code.co_name in ("__init__", "__new__", "<lambda>"):
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            made = type(first) if code.co_name == "__init__" else first
            if isinstance(made, type) and (is_dataclass(made) or hasattr(made, "_fields")):
                records.update({made.__qualname__} if made.__module__.startswith("hpctrip.") else ())

    sys.setprofile(profile)
    try:
        trained("stop.max_rounds=3", "seed=17")
    finally:
        sys.setprofile(None)
    assert {"Draft", "Outcome", "RoundRow", "SiteView"} <= records and len(records) <= MOST_RECORDS, records
    assert len(files) <= MOST_FILES, sorted(files)


# Stop rules


def test_reaching_the_target_stops_the_run_and_is_its_time_to_accuracy(sound):
    run = sound("stop.target_accuracy=0.001", "stop.max_rounds=50")
    assert run.meta["stop_reason"] == "target accuracy 0.001 reached"
    assert run.time_to_accuracy_s == run.rounds["clock_s"].iloc[-1]
    assert (run.rounds["accuracy"] >= 0.001).tolist() == [False] * (len(run.rounds) - 1) + [True]


def test_max_rounds_stops_the_run(tiny_run):
    assert tiny_run.meta["stop_reason"] == "max_rounds = 3" and len(tiny_run.rounds) == 3
    assert np.isnan(tiny_run.time_to_accuracy_s)


# Learning


@pytest.mark.parametrize(("num_rounds", "num_writes"), [(1, 1), (3, 2)])
def test_the_last_round_is_written_with_the_end_of_the_run(num_rounds, num_writes, trained, monkeypatch):
    """The first is written at once, so that a place that cannot be written is reported early."""
    monkeypatch.setattr(writer, "write_run", write := Mock(wraps=writer.write_run))
    run = trained(f"stop.max_rounds={num_rounds}")
    assert write.call_count == num_writes and (run.status, len(run.rounds)) == ("finished", num_rounds)


def test_evaluation_every_second_round_includes_the_last_one(sound, tiny_run):
    run = sound("evaluate.every_rounds=2")
    assert run.rounds["eval_seen"].tolist() == [0, 100, 100]
    assert run.rounds["accuracy"].isna().tolist() == [True, False, False]
    assert run.meta["params_digest"] == tiny_run.meta["params_digest"]  # looking changes nothing


def test_evaluation_can_use_fewer_samples_in_other_batches(sound, tiny_run):
    run = sound("evaluate.max_samples=75", "evaluate.batch_size=40")
    assert run.rounds["eval_seen"].tolist() == [75] * 3
    same = sound("evaluate.batch_size=40")
    assert same.rounds["eval_correct"].tolist() == tiny_run.rounds["eval_correct"].tolist()


@pytest.mark.parametrize(("epochs", "visits"), [(0.5, 10), (2, 40), (0.01, 10), (1.5, 30)])
def test_local_epochs_scale_visits_and_work(epochs, visits, sound):
    run = sound(f"train.local_epochs={epochs}", "policy.kind=all", "train.batch_size=10")
    # of 20 samples a site; less than a pass in whole batches of 10
    assert run.cohorts["num_samples"].unique().tolist() == [visits]
    assert run.sites["work_s"].tolist() == pytest.approx([visits * 0.02] * 10)


def test_a_fixed_number_of_steps_is_the_same_work_at_every_site(sound):
    """Steps go round and round a small shard; Eq. 1 still weighs a site by the samples that it holds."""
    run = sound(
        *FULL, "train.local_steps=3", "train.batch_size=16", "policy.kind=all", "partition.balanced=false"
    )
    assert run.cohorts["num_samples"].unique().tolist() == [48]  # = 3 * 16 visits
    assert run.sites["num_samples"].nunique() > 1
    assert run.sites["work_s"].tolist() == pytest.approx([48 * 0.02] * 10)


def test_a_site_goes_on_in_its_pass_however_many_rounds_it_skips():
    """Half of 100 samples in whole batches of 20: 60 in a round, the other 40 and 20 of the next pass in its next."""
    lines = ["sites.num_sites=4", "workload.train_samples=400", "workload.test_samples=200"]
    e = read_input([], [*lines, "policy.kind=random", "policy.k=2", "train.local_epochs=0.5"]).experiment
    aggregator = Aggregator(Host(e, 4, e.workload.task(e.seed), Ranks(), torch.device("cpu")))
    state, visits = State(), {site: [] for site in range(4)}
    for _ in range(16):
        draft, assignment = aggregator.begin(state)
        for site, visited in zip(assignment.cohort.tolist(), assignment.visited.tolist(), strict=True):
            parts = aggregator.host.visits(site, draft.round, visited=visited)
            visits[site].append((draft.round, np.concatenate(parts)))
        state, _ = aggregator.simulation.finish(draft, Outcome.assumed(np.ones(2)))
    assert any(second - first > 1 for (first, _), (second, _), *_ in visits.values())
    for site, ((_, first), (_, second), *_) in visits.items():
        assert len(first) == len(second) == 60
        assert sorted([*first, *second[:40]]) == aggregator.host.shards[site].tolist()


def test_a_policy_may_ask_for_more_of_one_epoch():
    shard, (once, twice) = np.arange(100), (LocalWork(local_epochs=e, batch_size=20) for e in (1, 2))
    expected = twice.visits(shard, 0, 2, round=1)
    assert [p.tolist() for p in once.visits(shard, 0, 2, round=1, times=2)] == [p.tolist() for p in expected]


def test_local_work_that_adapts_is_trained_charged_recorded_and_replayed(sound):
    """Communication takes most of a round here, so sites work more from round 2 on."""
    run = sound(*ADAPTIVE)
    works = run.rounds["local_work"]
    assert works[0] == 1 and works[1:].gt(1).all() and replay(run) == []
    cohorts = run.cohorts.merge(run.rounds[["round", "local_work"]]).merge(
        run.sites[["site", "num_samples", "work_s"]], on="site", suffixes=("", "_held")
    )
    assert (cohorts["num_samples"] == cohorts["local_work"] * cohorts["num_samples_held"]).all()
    expected_s = cohorts["local_work"] * cohorts["work_s"] / cohorts["throughput_fraction"]
    assert cohorts["compute_s"].tolist() == pytest.approx(expected_s.tolist())
    assert sound(*FIXED).rounds["local_work"].tolist() == [1, 1, 1]


def test_forged_local_work_is_found_by_the_replay(sound):
    run = sound(*ADAPTIVE)
    run.rounds.loc[1, "local_work"] += 1
    assert any("round 2: local_work is" in str(fault) for fault in replay(run))


@pytest.mark.parametrize("kind", SERVERS)
def test_every_server_optimiser_runs(kind, sound):
    sound(f"server.kind={kind}")


@pytest.mark.parametrize("kind", sorted(set(COMPRESSIONS) - {"none"}))
def test_every_compression_runs_and_makes_a_difference(kind, sound, tiny_run):
    assert sound(f"compression.kind={kind}").meta["params_digest"] != tiny_run.meta["params_digest"]


@pytest.mark.parametrize(
    "lines",
    [
        ("server.weights=uniform", "partition.balanced=false"),
        ("server.momentum=0.9", "server.nesterov=true", "server.lr=0.7"),
        ("train.prox_mu=0.1",),
        ("train.momentum=0.9", "train.weight_decay=0.001"),
        ("train.batch_size=7",),
        ("train.optimizer=adamw", "train.lr=0.001"),
        ("train.local_steps=3",),
        ("engine.name=stacked", "engine.sites_per_block=3"),
        ("workload.split=digits",),
    ],
    ids=lambda lines: lines[0],
)
def test_every_way_to_learn_runs_and_makes_a_difference(lines, sound, tiny_run):
    assert sound(*lines).meta["params_digest"] != tiny_run.meta["params_digest"]


def test_the_blocks_of_the_loop_engine_make_no_difference(sound, tiny_run):
    assert sound("engine.sites_per_block=4").meta["params_digest"] == tiny_run.meta["params_digest"]


# The world


PARTS = [
    [f"power.kind={kind}" for kind in POWER_MODELS if kind not in ("cluster", "csv")],  # which need files
    [f"throughput.kind={kind}" for kind in THROUGHPUT_MODELS],
    [f"partition.kind={kind}" for kind in PARTITIONS if kind != "natural"],
    [f"sites={{kind='{kind}', num_sites=10}}" for kind in SITES if kind != "csv"],
    ["network.update_bytes=auto", "network={round_trip=true, aggregator_bandwidth_bps='2 Gbit/s'}"],
    [
        "profiler={interval_s='5 min', power_noise=0.1, delay_noise=0.1}",
        "profiler={smoothing=0.5, power_noise=0.1}",
    ],
    ["policy.search=prefix"],
]
"""What may vary in each table; a run has one of each."""


@pytest.mark.parametrize(
    "lines", [[*filter(None, parts)] for parts in zip_longest(*PARTS)], ids=lambda lines: lines[0]
)
def test_every_part_of_the_world_runs(lines, sound):
    sound(*lines, "stop.max_rounds=2")


def test_positions_of_sites_are_read_from_a_file(sound, tmp_path):
    (tmp_path / "sites.csv").write_text("name,distance_mi\n" + "".join(f"c{i},{100 * i}\n" for i in range(6)))
    run = sound("sites.kind=csv", f"sites.path={tmp_path / 'sites.csv'}")
    assert run.sites["distance_m"].tolist() == pytest.approx([160934.4 * i for i in range(6)])


def test_measured_compute_is_the_wall_time_of_training(sound):
    run = sound("timing.compute=measured", "power.kind=constant", "power.fraction=0.5", "policy.kind=all")
    assert run.cohorts["compute_s"].tolist() == pytest.approx((2 * run.cohorts["train_wall_s"]).tolist())


def test_the_profilers_view_is_recorded_beside_the_truth(sound):
    exact, noisy = sound("policy.kind=all"), sound("policy.kind=all", "profiler.power_noise=0.2")
    assert (exact.cohorts["power_fraction"] == exact.cohorts["seen_power_fraction"]).all()
    assert (noisy.cohorts["power_fraction"] != noisy.cohorts["seen_power_fraction"]).any()
    assert (noisy.cohorts["power_fraction"] == exact.cohorts["power_fraction"]).all()


# Rank 0: an error after a round is raised at all ranks before the next one


@pytest.mark.parametrize(
    "error", [DivergedError("site 3 diverged"), InputError("power.kind = 'mine'", "gave P = 3")]
)
def test_a_round_without_a_result_is_raised_with_the_next_decision(error, monkeypatch):
    """Its own collectives are over: raising it there would leave the other ranks in the next one."""
    site = np.zeros(1, dtype=np.int64)
    assignment = Assignment(1, site, np.ones(1), np.ones(1), cut(site, 1), site, site, True, np.ones(1, int))
    aggregator, interruption, checkpointer = Mock(), Mock(), Mock()
    aggregator.begin.return_value = Mock(before=State()), assignment
    aggregator.finish.side_effect = error
    interruption.reason.return_value = ""
    checkpointer.due.return_value = False
    results = Results(aggregator, Mock(), checkpointer, interruption, Mock(), Mock(), None)
    monkeypatch.setattr("hpctrip.runner.loop.train_round", lambda *given: (torch.ones(1), site, site))
    with pytest.raises(HpctripError) as raised:
        train(Mock(ranks=Ranks()), State(), torch.zeros(1), results, Signals())
    assert raised.value is error
    assert "decide_on_root" in [frame.name for frame in raised.traceback]
