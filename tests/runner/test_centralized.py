"""The centralized baseline is one training without interruption: how it is cut into rounds only says how often its
accuracy is read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hpctrip.ranks.base import Ranks
from hpctrip.record.reader import open_run
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host

ADAMW = ("train.optimizer=adamw", "train.lr=0.002")
MOMENTUM = ("train.momentum=0.9", "train.lr=0.02")


@pytest.fixture
def passed(trained):
    """`passed(rounds_per_epoch, *lines)`: the accuracy and loss after one pass over 200 samples cut so often."""

    def run(rounds_per_epoch, *lines):
        return trained(
            "policy.kind=centralized",
            f"policy.rounds_per_epoch={rounds_per_epoch}",
            f"stop.max_rounds={rounds_per_epoch}",
            *lines,
        )

    return run


@pytest.mark.parametrize("lines", [(), ADAMW, MOMENTUM], ids=["sgd", "adamw", "momentum"])
def test_how_often_the_accuracy_is_read_does_not_change_what_is_learned(passed, lines):
    """One pass of 10 batches in two rounds, in five and in ten. Only rounding differs: Eq. 2 adds each round's
    update in fixed point."""
    whole, *cut = (passed(number, *lines) for number in (2, 5, 10))
    for run in cut:
        assert run.rounds["eval_loss"].iloc[-1] == pytest.approx(whole.rounds["eval_loss"].iloc[-1], rel=1e-3)
        assert run.rounds["clock_s"].iloc[-1] == pytest.approx(whole.rounds["clock_s"].iloc[-1])


def host(*lines):
    e = read_input([], ["workload.train_samples=400", "workload.test_samples=100", *lines]).experiment
    return Host(e, e.checked_num_sites(), e.workload.task(e.seed), Ranks(), torch.device("cpu"))


def test_one_pass_visits_every_sample_once():
    one = host("sites.num_sites=4", "policy.kind=centralized", "policy.rounds_per_epoch=10")
    visits = [np.concatenate(one.visits(0, round, visited=40 * (round - 1))) for round in range(1, 21)]
    visited, again = np.concatenate(visits[:10]), np.concatenate(visits[10:])
    assert sorted(visited.tolist()) == one.shards[0].tolist() == list(range(400))
    assert sorted(again.tolist()) == list(range(400)) and again.tolist() != visited.tolist()


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
def test_it_holds_what_the_sites_would_have_held(partition):
    lines = ("sites.num_sites=4", "partition.samples_per_site=20", f"partition.kind={partition}")
    central, sites = host(*lines, "policy.kind=centralized"), host(*lines)
    assert len(central.shards[0]) == 80
    assert central.shards[0].tolist() == sorted(np.concatenate(sites.shards).tolist())


def test_it_trains_one_site_on_all_the_data_and_no_wan_loses_its_updates(trained):
    lines = ("policy.rounds_per_epoch=5", "faults.lost_fraction=1.0", "faults.deadline_s=100")
    run = trained("policy.kind=centralized", *lines)
    assert run.rounds["num_arrived"].tolist() == [1, 1, 1] and run.cohorts["status"].tolist() == [0, 0, 0]
    assert run.sites["num_samples"].tolist() == [200] and run.rounds["num_samples"].tolist() == [40] * 3
    assert run.cohorts["comm_s"].tolist() == [0.0] * 3
    # 40 samples x 0.02 s at a quarter of the power
    assert run.rounds["makespan_s"].tolist() == pytest.approx([3.2] * 3)


def test_a_kept_optimiser_survives_a_resume_to_the_same_bits(trained, hpctrip, tiny, tmp_path):
    lines = ("policy.kind=centralized", "policy.rounds_per_epoch=10", *ADAMW)
    whole = trained(*lines, "stop.max_rounds=4")
    path = tmp_path / "run.h5"
    options = [part for line in lines for part in ("-o", line)]
    assert hpctrip("run", tiny, *options, "-o", "stop.max_rounds=2", "--out", path).code == 0
    assert hpctrip("resume", path, "-o", "stop.max_rounds=4").code == 0
    assert open_run(path).meta["params_digest"] == whole.meta["params_digest"]


def test_a_kept_optimiser_is_refused_by_the_stacked_engine(hpctrip, tiny, tmp_path):
    options = ["-o", "train.keep_optimizer=true", "-o", "train.momentum=0.9", "-o", "engine.name=stacked"]
    ended = hpctrip("run", tiny, *options, "--out", tmp_path / "run.h5")
    assert ended.code == 2 and 'engine.name = "stacked": sites keep their optimisers' in ended.err
