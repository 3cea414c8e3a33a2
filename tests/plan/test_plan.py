"""The forecast of `hpctrip plan` agrees with the run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from hpctrip.base.units import amount
from hpctrip.plan import PlannedRanks
from hpctrip.plan.plan import Plan, first_rounds
from hpctrip.plan.report import warnings
from hpctrip.plan.speed import Speed
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host


@pytest.fixture(scope="module")
def planned(tiny):
    """`planned(ranks, *lines)`: the tiny scenario's aggregator for so many ranks."""

    def build(num_ranks, *lines):
        e = read_input([tiny], lines).experiment
        task = e.workload.task(e.seed)
        return Aggregator(Host(e, e.checked_num_sites(), task, PlannedRanks(num_ranks), torch.device("cpu")))

    return build


def figures(aggregator, num_rounds=1, speed=None, bandwidth_bps=np.inf):
    """The plan's numbers after so many rounds."""
    return Plan(aggregator, first_rounds(aggregator, num_rounds), speed, bandwidth_bps, np.inf)


# a dynamic count, a draw, a deadline and a fixed cohort; other policies read the losses of earlier rounds, or are alike
@pytest.mark.parametrize("policy", ["powertrip", "random", "fedcs", "static"])
def test_the_planned_rounds_are_the_rounds_of_the_run(planned, trained, policy):
    lines = [f'policy.kind="{policy}"', "faults.deadline_s=18", "faults.lost_fraction=0.2"]
    lines += ["policy.k=4"] if policy in ("random", "static") else []
    run = trained(*lines)
    for ahead, (_, row) in zip(first_rounds(planned(1, *lines), 9), run.rounds.iterrows(), strict=True):
        cohort = run.cohorts[run.cohorts["round"] == row["round"]]
        assert ahead.assignment.cohort.tolist() == cohort["site"].tolist()
        assert ahead.row.cohort.status.tolist() == cohort["status"].tolist()
        assert ahead.row.clock_s == row["clock_s"]


def test_measured_work_of_sites_of_other_gpus_is_planned_as_modelled(planned, tmp_path):
    """A site of twice the usual number of GPUs needs half the time, however its work is known."""
    (tmp_path / "sites.csv").write_text("distance_km,gpus\n" + "500,100\n900,200\n700,25\n" * 2)
    lines = ["sites.kind=csv", f"sites.path={tmp_path / 'sites.csv'}", "policy.kind=all"]
    modelled, measured = (
        first_rounds(planned(1, *lines, f"timing.compute={compute}"), 3)
        for compute in ("modelled", "measured")
    )
    for one, other in zip(modelled, measured, strict=True):
        assert other.row.cohort.compute_s == pytest.approx(one.row.cohort.compute_s)


def test_the_placement_is_that_of_the_real_ranks(planned):
    aggregator = planned(4, "policy.kind=all")
    ahead = first_rounds(aggregator, 1)[0]
    # the sequential engine's blocks are sites
    loads = ahead.loads
    assert sorted(loads.num_sites) == [3, 3, 4] and loads.num_blocks.tolist() == loads.num_sites.tolist()
    assert loads.num_samples.sum() == aggregator.host.num_visits.sum()


def test_the_planned_exchange_is_that_of_the_ranks(planned):
    plan = figures(planned(4, "policy.kind=all"))
    host, assignment = plan.aggregator.host, plan.rounds[0].assignment
    exchange, num_params = plan.exchange(assignment), len(host.initial_params)
    assert exchange["up"] == host.train(host.initial_params, assignment)[0].nbytes
    assert exchange["up"] == 8 * (num_params + 6 * 10 + 4) and exchange["down"] == 4 * num_params
    assert exchange["counters"] == host.evaluate(host.initial_params, assignment, {}).nbytes
    alone = figures(planned(1, "policy.kind=all"))
    assert alone.exchange(alone.rounds[0].assignment)["up"] == 0


def test_wall_time_follows_from_the_busiest_host(planned):
    aggregator, speed = planned(3, "policy.kind=all"), Speed(100.0, np.inf, "as given")
    local = figures(aggregator, 2, speed).wall_s
    assert local == pytest.approx([100 / 100] * 2)  # 200 samples on two hosts
    # a vector of int64 up and one of float32 down, each twice over a link of a million bits per second
    num_params = len(aggregator.host.initial_params)
    exchange_s = 2 * 8 * (8 * (num_params + 6 * 10 + 3) + 4 * num_params) / 1e6
    assert figures(aggregator, 2, speed, 1e6).wall_s == pytest.approx([1 + exchange_s] * 2)


def test_the_planned_hours_energy_carbon_and_money_are_those_of_the_run(planned, trained, hpctrip, tiny):
    lines = (
        "carbon={kind='constant', per_kwh=300}",
        "price={kind='constant', per_kwh=0.2}",
        "policy.kind=all",
    )
    run, ahead = trained(*lines), figures(planned(1, *lines), 2, Speed(100.0, np.inf, "as given"))
    for name in ("makespan_s", "energy_j", "carbon_g", "cost"):
        assert ahead.total(name, 2) == pytest.approx(run.rounds[name][:2].sum())
        assert ahead.total(name, 3) == pytest.approx(ahead.total(name, 2) + run.rounds[name][1])
    told = plan(hpctrip, tiny, "--rounds", "2", "--samples-per-second", "100", lines=lines)
    assert f"{amount(ahead.total('carbon_g', 3), 'grams')} CO2" in " ".join(told.split())


@pytest.mark.parametrize(
    "rule", ["max_samples = 1500", "max_clock_s = 200", "max_energy = 20 MJ", "max_rounds = 7"]
)
def test_the_rule_that_ends_the_run_is_foreseen(planned, trained, rule):
    lines = ["policy.kind=all", "stop.max_rounds=9", "stop.target_accuracy=1.0", f"stop.{rule}"]
    lines += ["power={kind='uniform', low=0.99, high=1}"]  # rounds like the last one
    run = trained(*lines)
    assert figures(planned(1, *lines), 2).end == (len(run.rounds), run.meta["stop_reason"])
    assert run.meta["stop_reason"] == rule and len(run.rounds) > 2


def test_a_deadline_before_the_end_is_warned_of(hpctrip, tiny):
    lines = ("policy.kind=all", "stop.max_rounds=100")
    assert "its deadline" not in plan(hpctrip, tiny, lines=(*lines, "stop.deadline_s=90 days"))
    text = plan(hpctrip, tiny, lines=(*lines, "stop.deadline_s=15 min"))
    assert "! after all 100 rounds the run ends " in text and "its deadline of 0.25 h is about " in text
    assert "whether it learns enough by then, a run tells" in text


def test_two_deadlines_that_differ_are_warned_of(hpctrip, tiny, tmp_path):
    options = (
        "-o",
        "policy.objective={kind='deadline', deadline_s='8 h'}",
        "-o",
        "carbon={kind='constant', per_kwh=1}",
    )
    for command in (
        ["check"],
        ["plan", "--samples-per-second", 1000],
        ["run", "--out", tmp_path / "run.h5", "--overwrite"],
    ):
        for deadline, is_said in (("8 h", False), ("360 min", True)):
            ended = hpctrip(*command, tiny, *options, "-o", f"stop.deadline_s={deadline}")
            said = (
                "stop.deadline_s = 6 h and policy.objective.deadline_s = 8 h differ" in ended.out + ended.err
            )
            assert ended.code == 0 and said == is_said, ended.err


def test_it_says_how_many_rounds_end_by_a_time(planned):
    plan = figures(planned(1, "policy.kind=all", "stop.max_rounds=9"), 2)
    first_s, second_s = (planned.row.makespan_s for planned in plan.rounds)
    times_s = (0.0, first_s, first_s + 0.9 * second_s, first_s + second_s, first_s + 3.5 * second_s)
    assert [plan.rounds_within(time_s) for time_s in times_s] == [0, 1, 1, 2, 4]


def test_the_planned_file_sizes_are_those_of_the_run(planned, trained):
    lines = ("policy.kind=all", "server.momentum=0.9", "compression.kind=top-k")
    sizes, done = figures(planned(1, *lines), 3).written_bytes, trained(*lines)
    assert 0 <= Path(f"{done.path}.ckpt0").stat().st_size - sizes["checkpoint"] < 30_000  # its header
    assert 0 <= sizes["results"] - done.path.stat().st_size < 20_000


@pytest.mark.parametrize(
    ("lines", "engine", "model"),
    [
        (["train.momentum=0.9", "server.momentum=0.9"], 4, 8),  # a velocity, and a server slot
        (["train.optimizer=adamw", "train.lr=0.001"], 8, 0),  # two moments
    ],
)
def test_optimisers_cost_their_state(planned, lines, engine, model):
    plain, heavy = (figures(planned(2, "policy.kind=all", *more)) for more in ([], lines))
    p = len(plain.aggregator.host.initial_params)
    extra = {name: heavy.memory[name] - plain.memory[name] for name in plain.memory}
    assert (extra["engine"], extra["model"]) == (engine * p, model * p)


BUFFERED = (
    "policy.kind=all",
    "rounds={kind='buffered', num=2, concurrency=5}",
    "timing.seconds_per_sample=0.5",
)


def test_updates_that_are_under_way_take_the_planned_memory(planned, trained, monkeypatch):
    held, evaluate = [], Host.evaluate

    def evaluated(host, *arguments):
        held.append(sum(row.untyped_storage().nbytes() for row in host.memory.under_way.values()))
        return evaluate(host, *arguments)

    monkeypatch.setattr(Host, "evaluate", evaluated)
    trained(*BUFFERED)
    plans = [figures(planned(1, *BUFFERED), rounds) for rounds in (1, 2, 3)]
    assert held == [plan.memory["kept"] for plan in plans] and held[-1] > 0
    several = figures(planned(4, *BUFFERED), 3)
    assert several.updates_at.sum() == plans[-1].updates_at.sum() == 4 and len(several.updates_at) == 3
    grows = several.memory["aggregator"] - figures(planned(4, "policy.kind=all"), 3).memory["aggregator"]
    assert grows == pytest.approx(held[-1], abs=1000)  # the counters of other numbers of sites


def test_frozen_parameters_take_memory_but_are_not_exchanged(planned):
    texts = "workload={kind='llm', block_tokens=16, pretrain_steps=0, sentences={roles=12, characters=400}}"
    plan = figures(planned(2, texts, "partition.kind=natural"))
    p = len(plan.aggregator.host.initial_params)
    assert p == 43_776
    assert plan.memory["model"] == 12 * p + 4 * 357_024
    assert plan.exchange(plan.rounds[0].assignment)["down"] == 4 * p


def test_the_report_warns_of_probable_mistakes(hpctrip, tiny):
    lines = ("train.batch_size=500", "stop.target_accuracy=0.02")
    options = [part for line in lines for part in ("-o", line)]
    ended = hpctrip("plan", tiny, "-n", 41, "--samples-per-second", 1000, "--rounds", 2, *options)
    assert ended.code == 0
    text = re.sub(r"\s+", " ", ended.out)
    for warning in (
        "40 hosts, but at most 7 blocks",
        "10 of 10 shards have fewer samples (minimum 20) than one batch of 500",
        "near chance",
        "accuracy is measured on 100 predictions",
        "the paper does not state it",
        "the data are synthetic",
        "the power is synthetic",
    ):
        assert warning in text, text


def test_a_default_is_named_where_a_site_uses_it(hpctrip, tiny, tmp_path):
    lines = (f"sites={{kind='csv', path='{tmp_path}/sites.csv'}}", "workload.train_samples=100")
    for rows, is_named in (("5,2\n5,\n", True), ("5,2\n5,3\n", False)):
        (tmp_path / "sites.csv").write_text(f"distance_km,seconds_per_sample\n{rows}")
        assert ("is our default" in plan(hpctrip, tiny, lines=lines)) == is_named


def test_the_accuracy_of_texts_is_planned_on_as_many_predictions_as_the_run_counts(
    planned, trained, tiny_workloads
):
    text = [*tiny_workloads["shakespeare"], "workload.test_samples=10"]
    (seen,) = trained(*text, "stop.max_rounds=1").rounds["eval_seen"].unique()
    warned = "\n".join(warnings(figures(planned(1, *text))))
    assert f"accuracy is measured on {seen} predictions" in warned


def plan(hpctrip, tiny, *args, lines=()):
    """The report on one line."""
    options = [part for line in ("policy.kind=all", *lines) for part in ("-o", line)]
    ended = hpctrip("plan", tiny, "--samples-per-second", 1000, "--rounds", 2, *options, *args)
    assert ended.code == 0, ended.err
    return re.sub(r"\s+", " ", ended.out)


def test_gpus_are_planned_on_a_machine_without_one(hpctrip, tiny):
    text = plan(hpctrip, tiny, "-n", 6, "--device", "gpu")
    assert "on a GPU, engine stacked" in text and "blocks of 32 sites" in text
    assert (
        "5 hosts, but at most 1 block in any of these rounds (10 sites, up to 10 in one): 4 hosts idle"
        in text
    )
    assert "use fewer ranks, or set engine.lanes = 5" in text
    with_lanes = plan(hpctrip, tiny, "-n", 6, "--device", "gpu", lines=["engine.lanes=5"])
    assert "to fill 5 lanes" in with_lanes and "hosts idle" not in with_lanes
    assert "are small for" not in with_lanes
    alone = plan(hpctrip, tiny, "--device", "gpu", lines=["engine.lanes=5"])
    assert "blocks of 2 sites, cut for engine.lanes = 5 hosts, are small for 1 host(s)" in alone
    asked_for = plan(hpctrip, tiny, "-n", 6, lines=["ranks.device=cuda", "engine.lanes=5"])
    assert "on a GPU, engine stacked" in asked_for
    assert "on a CPU, engine sequential" in plan(hpctrip, tiny, "-n", 6, "--device", "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure")
def test_the_speed_of_an_absent_gpu_is_not_known(hpctrip, tiny):
    ended = hpctrip("plan", tiny, "--device", "gpu", "--rounds", 2)
    assert ended.code == 0 and "nan" not in ended.out
    text = re.sub(r"\s+", " ", ended.out)
    assert "speed per host unknown (there is no GPU here to measure it" in text
    assert "wall time unknown" in text


def test_planned_blocks_are_those_of_the_run(planned, trained):
    lines = ("policy.kind=all", "engine={name = 'stacked', lanes = 4}", "stop.max_rounds=1")
    blocks = first_rounds(planned(3, *lines), 1)[0].assignment.blocks
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    assert trained(*lines).meta["sites_per_block"] == 3


def test_too_little_memory_of_a_host_is_reported(hpctrip, tiny):
    assert "a host needs " in plan(hpctrip, tiny, "--memory-gb", 0.001)
    assert "a host needs " not in plan(hpctrip, tiny, "--memory-gb", 64)


def test_rank_0_does_not_count_among_the_hosts_that_share_the_cores(hpctrip, tiny, monkeypatch):
    """The README suggests two hosts and the aggregator on two cores for a laptop."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert "as predicted" not in plan(hpctrip, tiny, "-n", 3)
    assert "as predicted" not in plan(hpctrip, tiny, "-n", 41, "--device", "gpu")
    warning = "10 hosts of 1 thread(s) at work on this machine's 2 cores would train about 5 times as long as predicted"
    assert f"{warning}; -n 3 fills them" in plan(hpctrip, tiny, "-n", 41)


def test_a_speed_is_measured_where_none_is_given(hpctrip, tiny):
    ended = hpctrip("plan", tiny)
    assert ended.code == 0 and "measured here in" in re.sub(r"\s+", " ", ended.out)


@pytest.mark.parametrize(
    "args", [["-n", "0"], ["--samples-per-second", "0"], ["-o", "policy.k=3"], ["nothing.toml"]]
)
def test_bad_input_is_refused(hpctrip, args):
    ended = hpctrip("plan", *args)
    assert ended.code == 2 and "Traceback" not in ended.err
