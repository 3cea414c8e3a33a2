"""TensorBoard and MLflow read back what the callbacks wrote. Each test skips by name where its extra is not
installed."""

from __future__ import annotations

import math

import pytest

from hpctrip.runner.callbacks import RunFacts, scalars
from hpctrip.runner.callbacks.mlflow import Mlflow
from hpctrip.runner.callbacks.tensorboard import BY_CLOCK, TensorBoard


@pytest.fixture(scope="module")
def rows(trained):
    """Three rounds that happened; the first was not evaluated."""
    rows = trained("evaluate.every_rounds=2", "stop.max_rounds=3", "meter.assumed_w=40").history().rows
    assert [bool(row.eval_seen) for row in rows] == [False, True, True]
    return rows


@pytest.fixture
def facts(tmp_path):
    """`facts(rows)`: of a run that has come so far."""

    def build(rounds=(), created="2026-11-22T10:00:00+00:00"):
        values = {"seed": 3, "policy": {"kind": "random", "k": 2}, "label": "x" * 1000}
        return RunFacts("tiny", tmp_path / "it's 100 %.h5", created, values, tuple(rounds))

    return build


def finite(rows, name):
    points = [(row.round, scalars(row)[name]) for row in rows]
    return [(round, value) for round, value in points if math.isfinite(value)]


def check_same(actual, expected):
    """(step, value) of a curve; TensorBoard keeps 32 bits of a value."""
    assert [step for step, _ in actual] == [step for step, _ in expected]
    assert [value for _, value in actual] == pytest.approx([value for _, value in expected], rel=1e-6)


def follow(callback, run, rows, status):
    callback.start(run)
    for row in rows:
        callback.round(row)
    callback.end(status)


@pytest.fixture
def events(tmp_path):
    """`events(tag)`: (step, value) of a curve, as TensorBoard shows it."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(tag):
        (folder,) = tmp_path.glob("*.tensorboard")
        actual = EventAccumulator(str(folder), size_guidance={"scalars": 0})
        actual.Reload()
        return [(point.step, point.value) for point in actual.Scalars(tag)]

    return read


def test_tensorboard_shows_every_number_of_every_round(rows, facts, events):
    follow(TensorBoard(), facts(), rows, "finished")
    for tag in (
        "learning/accuracy",
        "learning/train_loss",
        "round/clock_s",
        "wall/train_wall_s",
        "wall/wall_j",
    ):
        check_same(events(tag), finite(rows, tag.partition("/")[2]))
    by_clock = [(round(row.clock_s), row.accuracy) for row in rows if row.eval_seen]
    check_same(events(BY_CLOCK), by_clock)


def test_a_run_that_goes_on_goes_on_in_the_same_folder_without_double_rounds(rows, facts, events):
    """The earlier start had told of round 2 and was killed before it saved it."""
    killed = TensorBoard()
    killed.start(facts())
    for row in rows[:2]:
        killed.round(row)
    killed._writer.flush()
    follow(TensorBoard(), facts(rows[:1]), rows[1:], "finished")
    check_same(events("round/clock_s"), finite(rows, "clock_s"))


@pytest.fixture
def logged(tmp_path, monkeypatch):
    """`logged()`: the runs in the database beside the results, and its client."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def read():
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        experiment = client.get_experiment_by_name("tiny")
        return client.search_runs([experiment.experiment_id], order_by=["start_time"]), client

    return read


def points(client, run, name):
    return [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]


@pytest.mark.timeout(900)
def test_mlflow_has_one_run_with_its_input_and_every_round_however_often_it_was_resumed(rows, facts, logged):
    killed = Mlflow()
    killed.start(facts())
    for row in rows[:2]:
        killed.round(row)
    follow(Mlflow(), facts(rows[:1]), rows[1:2], "interrupted")
    (run,), client = logged()
    assert run.info.status == "KILLED"
    follow(Mlflow(), facts(rows[:2]), rows[2:], "finished")
    (run,), client = logged()
    assert run.info.status == "FINISHED" and run.info.run_name == "it's 100 %"
    assert run.data.params == {"seed": "3", "policy.kind": "random", "policy.k": "2", "label": "x" * 500}
    for name in ("accuracy", "clock_s", "train_loss", "wall_s"):
        check_same(points(client, run, name), finite(rows, name))

    # a new run that replaces the file is another one; what it lacks of its rounds is logged when it starts
    follow(Mlflow(), facts(rows, created="2026-11-22T11:00:00+00:00"), (), "failed")
    (_, other), client = logged()
    assert other.info.status == "FAILED"
    check_same(points(client, other, "clock_s"), finite(rows, "clock_s"))
