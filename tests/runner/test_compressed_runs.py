"""Compression in whole runs: what it does to a real update, to training where sites differ, and to the clock."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hpctrip.base.rng import stream
from hpctrip.learn.compression import COMPRESSIONS
from hpctrip.learn.counters import TRAINING, Tally
from hpctrip.learn.engines.base import SiteUpdate
from hpctrip.learn.task import Dataset, Task
from hpctrip.ranks.base import Ranks
from hpctrip.record.verify import verify
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import read_input
from hpctrip.runner.host import Host
from hpctrip.runner.replay import replay
from hpctrip.sim.step import State


def built(task=None, *lines, paths=()):
    """Aggregator and host of one run in this process, with its own task or another."""
    e = read_input(paths, lines).experiment
    task = task or e.workload.task(e.seed)
    return Aggregator(Host(e, e.checked_num_sites(), task, Ranks(), torch.device("cpu")))


# A real update


def test_payload_and_error_of_a_sites_real_update(tiny):
    """One site's update of the CNN. The bounds are those of each encoding over its buckets, in the 2-norm."""
    aggregator = built(paths=[tiny])
    host, site = aggregator.host, int(aggregator.simulation.begin(State()).cohort[0])
    (trained,) = host.engine.train(host.initial_params, [host.visits(site, 1)])
    update = trained.delta
    num_params, norm = len(update), float(torch.linalg.vector_norm(update))
    values = {}
    for kind in COMPRESSIONS:
        rule = COMPRESSIONS[kind]()
        decoded = rule.roundtrip(update, stream(0, "compression", 1, 0))
        error = float(torch.linalg.vector_norm(decoded - update)) / norm
        values[kind] = rule.payload_bytes(num_params), error
    sizes, errors = (dict(zip(values, column, strict=True)) for column in zip(*values.values(), strict=True))
    assert sizes["none"] > sizes["half"] > sizes["int8"] > sizes["qsgd"] > sizes["top-k"]
    assert errors["none"] == 0 < errors["half"] <= 2**-11 + 2**-25 * num_params**0.5 / norm
    # every entry off by half a scale, the largest being all of the norm
    assert errors["int8"] <= 512**0.5 / 254
    assert errors["int8"] < errors["qsgd"] <= (128**0.5 / 7) ** 0.5
    largest = update.abs().sort(descending=True).values[: round(0.01 * num_params)]
    kept = float(torch.linalg.vector_norm(largest)) / norm
    assert errors["top-k"] == pytest.approx((1 - kept**2) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(
    "fault",
    [
        {"magnitude": float("nan")},
        {"magnitude": float("inf")},
        {"magnitude": 2.0**20},
        {"train_loss": float("nan")},
        {"train_loss": -float("inf")},
        {"train_loss": 2.0**20},
        "the sum",
    ],
)
def test_a_diverged_update_leaves_the_state_of_its_site_unchanged(tiny, monkeypatch, fault):
    lines = (
        "train.optimizer=adamw",
        "train.keep_optimizer=true",
        "compression.kind=top-k",
        "sites.num_sites=4",
    )
    host = (aggregator := built(None, *lines, paths=[tiny])).host
    draft, assignment = aggregator.begin(State())
    host.train(host.initial_params, assignment)
    before = {site: row.clone() for site, row in host.memory.rows.items()}
    assert before and all(row.any() for row in before.values())
    if fault == "the sum":  # refuses what arrives of an update that was finite when it was sent

        def too_large(self, delta, rng):
            return torch.full_like(delta, 2.0**20)

        monkeypatch.setattr(COMPRESSIONS["top-k"], "roundtrip", too_large)
        fault = {}
    honest = SiteUpdate.__init__
    monkeypatch.setattr(
        SiteUpdate,
        "__init__",
        lambda self, *args, **named: honest(self, *args, **named) or vars(self).update(fault),
    )
    host.train(host.initial_params, assignment)
    diverged = Tally(TRAINING, len(draft.cohort), 1, host.partial.tail.numpy()).integers["diverged"]
    assert diverged.all()
    for site, row in host.memory.rows.items():
        assert torch.equal(row, before[site])


# Convergence

ROWS = np.array([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]], dtype=np.float32)


def least_squares() -> Task:
    """Site i has the one sample (a_i, 0). With an L2 penalty of 1/2 its loss is <a_i, x>^2 + |x|^2 / 4, and the
    optimum of all is x = 0 (Beznosikov et al. 2020, Example 1)."""
    data = Dataset(ROWS, np.arange(3), groups=np.arange(3))
    return Task(
        train=data,
        test=data,
        num_classes=3,
        build_model=lambda: nn.Linear(3, 1, bias=False),
        prepare=lambda x: x,
        loss=lambda values, _: values.square().mean(),
    )


LR = 0.04


def descended(*lines, rounds=200):
    """Parameters of federated gradient descent from (1, 1, 1) after these rounds, with one step per site and round."""
    aggregator = built(
        least_squares(),
        "sites.num_sites=3",
        "partition.kind=natural",
        "policy.kind=all",
        "train.weight_decay=0.5",
        "train.batch_size=1",
        f"train.lr={LR}",
        *lines,
    )
    host, params = aggregator.host, torch.ones(3)
    for number in range(rounds):
        _, assignment = aggregator.begin(State(round=number))
        params = host.server_step(params, assignment, *host.train(params, assignment))[0]
    return float(torch.linalg.vector_norm(params))


def test_top_k_with_error_feedback_converges_where_without_it_does_not():
    """At t (1, 1, 1) site i's gradient is -5.5 t in its own entry, 4.5 t in the others: top-1 sends a step of
    +5.5 t lr in every entry, away from the optimum, and the mean over the sites is (1, 1, 1) t (1 + 5.5 lr / 3)."""
    top_1 = ("compression.kind=top-k", "compression.fraction=0.33")
    start = 3**0.5
    assert descended() < 1e-3 * start
    assert descended(*top_1) < 1e-3 * start
    without = (*top_1, "compression.error_feedback=false")
    assert descended(*without, rounds=1) == pytest.approx(start * (1 + 5.5 * LR / 3))
    assert descended(*without, rounds=50) == pytest.approx(start * (1 + 5.5 * LR / 3) ** 50, rel=1e-3)


# The simulated WAN


@pytest.mark.parametrize("size", ["1.5 GB", "auto"])
def test_the_update_is_shorter_on_its_way_up_and_the_model_is_not_on_its_way_down(size, trained):
    """Eq. 3: d / v + 8 M / B up, M compressed; the same with M uncompressed down."""
    lines = (
        "policy.kind=all",
        f"network.update_bytes={size}",
        "network.round_trip=true",
        "stop.max_rounds=1",
    )
    run = trained(*lines, "compression.kind=int8")
    num_params = run.meta["num_params"]
    payload_bytes = num_params + 4 * -(-num_params // 512)
    full_bytes = 4 * num_params if size == "auto" else 1.5e9
    assert run.meta["payload_bytes"] == payload_bytes and run.meta["compression"] == "int8"
    assert run.meta["update_bytes"] == pytest.approx(full_bytes * payload_bytes / (4 * num_params))
    sites = run.sites.loc[run.cohorts["site"]]
    expected = (
        2 * sites["distance_m"] / 2e8 + 8 * (run.meta["update_bytes"] + full_bytes) / sites["bandwidth_bps"]
    )
    assert run.cohorts["comm_s"].tolist() == pytest.approx(expected.tolist())
    assert verify(run) == [] and replay(run) == []


def test_run_and_plan_print_the_compressed_size(hpctrip, tiny, tmp_path):
    lines = ["-o", "compression.kind=half", "-o", "stop.max_rounds=1"]
    output = hpctrip("run", tiny, *lines, "--out", tmp_path / "run.h5").out
    assert "updates of 750 MB (half: 50.00% of 1.5 GB) on the simulated WAN" in output
    assert "updates of 750 MB (half: 50.00% of 1.5 GB)" in hpctrip("plan", tiny, *lines).out
