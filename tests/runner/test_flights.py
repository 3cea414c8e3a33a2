"""Updates that arrive in a later round: trained for real, on any number of ranks, killed, resumed, replayed, reused."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hpctrip.config.plugins import Plugin
from hpctrip.learn.params import flatten
from hpctrip.plan.plan import first_rounds
from hpctrip.ranks.base import Ranks
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.diff import diff
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.host import Host
from hpctrip.runner.replay import replay
from hpctrip.sim.rounds import Status

HERE = Path(__file__).parents[1]
PLUGINS = f"plugins=['{HERE / 'points.py'}', '{HERE / 'delayed.py'}']"
CODE = ("--plugin", HERE / "points.py", "--plugin", HERE / "delayed.py")
POINTS = (PLUGINS, "workload={kind='points', train_samples=400, test_samples=200}", "policy.kind=all")
DELAYED = (
    *POINTS,
    "rounds.kind='delayed by one'",
    "stop.max_rounds=6",
    "sites.num_sites=6",
    "power.kind=uniform",
)
AS_THEY_COME = (*DELAYED, "rounds={kind='as they come', num=3}")
FADING = "rounds.fading=1.0"
QUORUM = (*DELAYED, "rounds={kind='quorum', num=3, grace_s=2, staleness_exponent=1}")
BUFFERED = (*DELAYED, "rounds={kind='buffered', num=2, concurrency=4, staleness_exponent=1, work_by_speed=3}")
EVERYTHING = (
    "compression={kind='top-k', fraction=0.2}",
    "server.kind=fedadam",
    "server.on_diverged=drop",
    "faults={deadline_s=60, mtbf_s=100, mttr_s=40, lost_fraction=0.4, late_fraction=0.3, late_s=40}",
    "network.aggregator_bandwidth_bps='2 Gbit/s'",
    "train.local_steps=3",
)
"""Error feedback, a server optimiser, faults, a shared link, and passes that go on, beside BatchNorm."""


def overrides(*lines):
    """`-o` arguments."""
    return [f"-o{line}" for line in lines]


def host_of(run):
    """A host of the run, in this process."""
    experiment = experiment_of(run.input)
    task = experiment.workload.task(experiment.seed)
    return Host(experiment, experiment.checked_num_sites(), task, Ranks(), torch.device("cpu"))


def last_params(run):
    """The global model after the last round."""
    checkpoint, *_ = checkpoints.newest(run.path)
    return torch.from_numpy(checkpoint.model.params)


def trained_alone(host, params, site, round, times):
    """What one site makes of a model in a round, by nn.Module and torch.optim: a flat vector, float64."""
    model = host.task.build_model().train()
    nn.utils.vector_to_parameters(params[: host.num_params].float(), model.parameters())
    statistics = [b for b in model.buffers() if b.is_floating_point()]
    nn.utils.vector_to_parameters(params[host.num_params : -1].float(), statistics)
    next(b for b in model.buffers() if not b.is_floating_point()).fill_(int(params[-1]))
    optimizer, data = torch.optim.SGD(model.parameters(), lr=host.work.lr), host.task.train
    for part in host.visits(site, round, times):
        for batch in torch.from_numpy(part).split(host.work.batch_size):
            optimizer.zero_grad()
            inputs, labels = torch.from_numpy(data.inputs)[batch], torch.from_numpy(data.labels)[batch]
            host.task.loss(model(inputs), labels).backward()
            optimizer.step()
    return flatten(model).double()


def plain(host, rows, momentum, fraction):
    """Federated averaging of updates that arrive late: the last model, float64."""
    params, n = host.initial_params.double(), host.num_params
    kept, residual, velocity = {}, {}, torch.zeros(n, dtype=torch.float64)
    for row in rows:
        flights = row.cohort
        begun = (flights.age == 0) & (flights.status != Status.OUT)
        for site, times in zip(flights.site[begun].tolist(), flights.local_work[begun].tolist(), strict=True):
            local = trained_alone(host, params, site, row.round, times)
            delta = local[:n] - params[:n] + residual.get(site, 0.0)
            if fraction < 1:
                sent = torch.zeros_like(delta)
                largest = delta.abs().topk(round(fraction * n)).indices
                sent[largest] = delta[largest]
                residual[site], delta = delta - sent, sent
            kept[site, row.round] = delta, local[n:]
        arrived = flights.status == Status.ARRIVED
        shares = (
            host.num_samples[flights.site]
            * arrived
            / max(1, (host.num_samples[flights.site] * arrived).sum())
        )
        flown = zip(
            flights.site.tolist(), (row.round - flights.age).tolist(), shares / (1 + flights.age), strict=True
        )
        landed = [
            (*kept.pop((site, start)), w) for (site, start, w), a in zip(flown, arrived, strict=True) if a
        ]
        if landed:
            velocity = momentum * velocity + sum(w * delta for delta, _, w in landed)
            buffers = params[n:] + sum(w * (values - params[n:]) for _, values, w in landed)
            buffers[-1] = max(params[-1], *(values[-1] for _, values, _ in landed))
            params = torch.cat([params[:n] + velocity, buffers])
    return params


@pytest.mark.parametrize(
    ("kind", "momentum", "fraction"),
    [
        ((*DELAYED, FADING), 0.0, 1.0),
        *((kind, 0.9, 0.3) for kind in ((*DELAYED, FADING), (*AS_THEY_COME, FADING), QUORUM, BUFFERED)),
    ],
    ids=["plain", "delayed by one", "as they come", "quorum", "buffered"],
)
def test_late_updates_move_the_model_as_in_plain_torch(trained, kind, momentum, fraction):
    compression = () if fraction == 1 else (f"compression={{kind='top-k', fraction={fraction}}}",)
    run = trained(*kind, f"server.momentum={momentum}", *compression)
    assert run.cohorts["age"].max() > 0
    expected = plain(host_of(run), run.history().rows, momentum, fraction)
    torch.testing.assert_close(last_params(run).double(), expected, rtol=1e-6, atol=1e-6)


LATE = (*DELAYED, *EVERYTHING, "stop.max_rounds=8", "rounds.fading=0.5", "policy={kind='random', k=4}")


@pytest.fixture(scope="module")
def late(hpctrip, tiny, tmp_path_factory):
    """A run in one process in which updates arrive late, with everything that they may meet."""
    path = tmp_path_factory.mktemp("late") / "run.h5"
    ended = hpctrip("run", tiny, *overrides(*LATE), "--out", path)
    assert ended.code == 0, ended.err
    return open_run(path)


def test_the_run_of_these_tests_has_every_fate(late):
    assert set(late.cohorts["status"]) >= {
        Status.ARRIVED,
        Status.OUT,
        Status.LATE,
        Status.LOST,
        Status.UNDER_WAY,
    }
    assert set(late.cohorts["age"]) == {0, 1} and late.rounds["num_arrived"].max() > 1


def test_a_flight_is_one_row_whatever_the_number_of_its_rounds(late):
    flights, ends_s = late.flights, late.rounds.set_index("round")["clock_s"]
    assert not flights.duplicated(["site", "round"]).any() and len(flights) < len(late.cohorts)
    assert flights["energy_j"].sum() == pytest.approx(late.rounds["energy_j"].sum(), rel=1e-12)
    under_way, away = flights["status"] == Status.UNDER_WAY, flights["status"] == Status.OUT
    assert set(flights["round"][under_way]) == {8} and flights["end_s"].isna().equals(under_way)
    ended = flights[~under_way]
    assert ended["end_s"].tolist() == ends_s[ended["round"] + ended["age"]].tolist()
    assert set(ended["age"][~away]) == {1} and set(ended["age"][away]) == {0}
    arrived = flights[flights["status"] == Status.ARRIVED]
    assert (arrived["start_s"] < arrived["computed_s"]).all() and (arrived["weight"] > 0).all()
    assert (arrived["sent_s"] <= arrived["end_s"] + 1e-9).all()
    assert flights["sent_s"][away | (flights["status"] == Status.LATE)].isna().all()


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_number_of_ranks_changes_no_bit(late, tiny, tmp_path, launch, ranks):
    ended = launch(ranks, "run", tiny, *overrides(*LATE), "--out", tmp_path / "run.h5")
    assert ended.code == 0, ended.err
    assert diff(open_run(tmp_path / "run.h5"), late) == []


@pytest.mark.mpi
def test_a_killed_run_goes_on_with_its_flights_on_another_number_of_ranks(late, tiny, tmp_path, launch):
    out = tmp_path / "run.h5"
    lines = overrides(*LATE, "checkpoint.every_rounds=1")
    process = launch.start(3, "run", tiny, *lines, "--out", out, env={"HPCTRIP_TEST_SLOW": "0.3"})
    while not any(
        path.exists() and checkpoints.read(path).state.round >= 3 for path in checkpoints.generations(out)
    ):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    launch.kill(process)
    process.communicate()
    saved, *_ = checkpoints.newest(out)
    assert len(saved.model.updates) == (saved.state.history.last.cohort.status == Status.UNDER_WAY).sum() > 0
    assert saved.state.round < 8
    ended = launch(2, "resume", out, *CODE)
    assert ended.code == 0, ended.err
    assert diff(open_run(out), late) == []


def test_a_replay_finds_the_same_flights_and_every_forged_one(late, hpctrip):
    code = tuple(Plugin.read(str(path)) for path in CODE[1::2])
    ended = hpctrip("verify", late.path, *CODE)
    assert ended.code == 0 and ": ok\n" in ended.out + "\n", ended
    for column, change in (("start_s", 1.0), ("comm_s", 1.0), ("weight", 0.1), ("wait_energy_j", 1e3)):
        forged = open_run(late.path)
        forged.cohorts.loc[forged.cohorts.index[forged.cohorts["age"] == 1][0], column] += change
        assert any(column in str(fault) for fault in [*verify(forged), *replay(forged, code)]), column
    forged = open_run(late.path)
    forged.cohorts.loc[forged.cohorts.index[forged.cohorts["age"] == 1][0], "age"] = 2
    assert any("that started in round" in str(fault) for fault in verify(forged))


def test_a_plan_has_the_flights_of_the_run(trained):
    run = trained(*DELAYED, *EVERYTHING, "policy.kind=all")
    planned = [each.row for each in first_rounds(Aggregator(host_of(run)), len(run.rounds))]
    for row, other in zip(run.history().rows, planned, strict=True):
        assert (row.clock_s, row.num_arrived) == (other.clock_s, other.num_arrived)
        assert row.energy_j == pytest.approx(other.energy_j, rel=1e-12)
        for name in ("site", "age", "status", "start_s", "comm_s", "weight"):
            np.testing.assert_array_equal(getattr(row.cohort, name), getattr(other.cohort, name))


def test_rounds_of_the_same_flights_are_taken_from_the_cache(late, tiny, tmp_path, hpctrip):
    lines = (*LATE, f"store={{path='{tmp_path / 'cache'}', keep_every=3}}")
    for name, stored in (("one", 0), ("two", 6), ("three", 8)):
        last = () if name == "three" else ("stop.max_rounds=6",)
        ended = hpctrip("run", tiny, *overrides(*lines, *last), "--out", tmp_path / f"{name}.h5")
        assert ended.code == 0, ended.err
        assert open_run(tmp_path / f"{name}.h5").meta["stored_rounds"] == min(stored, 6), name
    assert diff(open_run(tmp_path / "three.h5"), late) == []


def test_a_retimed_run_takes_the_rounds_whose_flights_are_the_same(late, tmp_path, hpctrip):
    plugins = ("--plugin", HERE / "points.py", "--plugin", HERE / "delayed.py")
    ended = hpctrip(
        "retime",
        late.path,
        *plugins,
        "-o",
        "carbon={kind='constant', per_kwh=300}",
        "--out",
        tmp_path / "same.h5",
    )
    assert ended.code == 0 and "8 round(s): 8 taken, 0 trained" in ended.out, ended
    ended = hpctrip(
        "retime", late.path, *plugins, "-o", "rounds.kind=synchronous", "--out", tmp_path / "other.h5"
    )
    assert ended.code == 0, ended
    assert "arrivals part at round 1" in ended.out, ended.out


def test_a_checkpoint_without_an_update_that_is_under_way_is_refused(tiny, tmp_path, hpctrip):
    out = tmp_path / "run.h5"
    assert hpctrip("run", tiny, *overrides(*DELAYED, "stop.max_rounds=1"), "--out", out).code == 0
    saved, file, _ = checkpoints.newest(out)
    incomplete = replace(saved.model, updates=dict([*saved.model.updates.items()][1:]))
    file.write_bytes(b"".join(checkpoints.pack(replace(saved, model=incomplete))))
    ended = hpctrip("resume", out, *CODE, "-o", "stop.max_rounds=3")
    ended.check_refused([str(file), "does not hold the updates", "resume with"])
