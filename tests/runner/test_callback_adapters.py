"""TensorBoard, MLflow and Prometheus read back what the callbacks wrote. Each test skips by name where its extra is not
installed."""

from __future__ import annotations

import http.server
import json
import math
import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.device.meter import PHASES
from hpctrip.ranks.base import hostname
from hpctrip.record.reader import open_run
from hpctrip.runner.callbacks import RunFacts, scalars
from hpctrip.runner.callbacks.mlflow import Mlflow
from hpctrip.runner.callbacks.prometheus import Prometheus
from hpctrip.runner.callbacks.tensorboard import BY_CLOCK, TensorBoard

DASHBOARD = Path(__file__).parents[2] / "docs" / "howto" / "grafana.json"


@pytest.fixture(scope="module")
def rows(trained):
    """Three rounds that happened; the first was not evaluated."""
    rows = trained("evaluate.every_rounds=2", "stop.max_rounds=3", "meter.assumed_w=40").history().rows
    assert [bool(row.eval_seen) for row in rows] == [False, True, True]
    return rows


@pytest.fixture
def facts(tmp_path):
    """`facts(rows)`: of a run that has come so far."""

    def build(rounds=(), created="2026-11-22T10:00:00+00:00", hosts=("here",)):
        values = {"seed": 3, "policy": {"kind": "random", "k": 2}, "label": "x" * 1000}
        return RunFacts("tiny", tmp_path / "it's 100 %.h5", created, values, tuple(rounds), hosts)

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
    tags = "learning/accuracy learning/train_loss round/clock_s wall/train_wall_s wall/wall_j"
    for tag in tags.split():
        check_same(events(tag), finite(rows, tag.partition("/")[2]))
    by_clock = [(round(row.clock_s), row.accuracy) for row in rows if row.eval_seen]
    check_same(events(BY_CLOCK), by_clock)


def test_tensorboard_shows_each_round_of_a_resumed_run_once(rows, facts, events):
    """The earlier start had told of round 2 and was killed before it saved it."""
    killed = TensorBoard()
    killed.start(facts())
    for row in rows[:2]:
        killed.round(row)
    killed._writer.flush()
    follow(TensorBoard(), facts(rows[:1]), rows[1:], "finished")
    check_same(events("round/clock_s"), finite(rows, "clock_s"))


def test_tensorboard_shows_an_earlier_run_until_the_new_one_has_a_round(rows, facts, events):
    follow(TensorBoard(), facts(), rows, "finished")
    follow(TensorBoard(), facts(), (), "failed")
    check_same(events("round/clock_s"), finite(rows, "clock_s"))
    follow(TensorBoard(), facts(), rows[:1], "finished")
    check_same(events("round/clock_s"), finite(rows[:1], "clock_s"))


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
    assert run.info.status == "FINISHED" and run.info.run_name == "it's 100 %.h5"
    assert run.data.params == {"seed": "3", "policy.kind": "random", "policy.k": "2", "label": "x" * 500}
    for name in ("accuracy", "clock_s", "train_loss", "wall_s"):
        check_same(points(client, run, name), finite(rows, name))

    # a new run that replaces the file is another one; what it lacks of its rounds is logged when it starts
    follow(Mlflow(), facts(rows, created="2026-11-22T11:00:00+00:00"), (), "failed")
    (_, other), client = logged()
    assert other.info.status == "FAILED"
    check_same(points(client, other, "clock_s"), finite(rows, "clock_s"))


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("http://me:secret@127.0.0.1:9/lab", "http://127.0.0.1:9/lab (connection refused)"),
        ("http://[::1", "http://[::1 (invalid ipv6 url)"),
    ],
)
def test_an_mlflow_server_that_does_not_answer_is_named_before_the_run(
    server, shown, hpctrip, tiny, monkeypatch
):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    refused = hpctrip("check", tiny, "-o", "callbacks.mlflow.enabled=true")
    refused.check_refused([f"no MLflow server at {shown}; start it, set MLFLOW_TRACKING_URI, or go without"])
    assert hpctrip("check", tiny, "-o", "callbacks.mlflow.enabled=false").code == 0


def test_an_mlflow_server_that_refuses_a_question_is_there(monkeypatch):
    """As one that wants a password does."""
    pytest.importorskip("mlflow")

    class Refusing(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(401)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        monkeypatch.setenv("no_proxy", "*")
        Mlflow(tracking_uri=f"http://127.0.0.1:{server.server_port}").check()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def parsed(tmp_path):
    """`parsed()`: {(metric, rank or host, phase): value} of the file; every sample has the label of its run."""
    pytest.importorskip(
        "prometheus_client", reason="prometheus_client is not installed (the extra [metrics])"
    )
    from prometheus_client.parser import text_string_to_metric_families

    def read():
        (path,) = tmp_path.rglob("*.prom")
        values = {}
        for family in text_string_to_metric_families(path.read_text()):
            assert family.documentation and family.name.startswith(("hpctrip_", "hw_"))
            for sample in family.samples:
                assert f"{sample.labels['run']}.prom" == path.name
                owner = sample.labels.get("rank", sample.labels.get("host", ""))
                series = sample.name, owner, sample.labels.get("phase", "")
                assert series not in values
                values[series] = sample.value
        return values

    return read


def totals_of(num_ranks, readers=()):
    """Rank r has spent 10 r + p seconds in phase p, readers ten times as many joules."""
    wall_s = 10.0 * np.arange(num_ranks) + np.arange(len(PHASES))[:, None]
    wall_j = np.full_like(wall_s, np.nan)
    wall_j[:, list(readers)] = 10 * wall_s[:, list(readers)]
    return wall_s, wall_j


def test_prometheus_has_the_totals_of_the_rounds(parsed, facts, rows):
    follow(Prometheus(), facts(), rows, "finished")
    values = {name: value for (name, rank, _), value in parsed().items() if not rank}
    assert values["hpctrip_rounds_total"] == values["hpctrip_round_seconds_count"] == 3
    assert values["hpctrip_round_seconds_sum"] == pytest.approx(sum(row.wall_s for row in rows))
    assert values["hpctrip_samples_total"] == sum(row.num_samples for row in rows)
    assert values["hpctrip_accuracy"] == rows[-1].accuracy
    assert values["hpctrip_simulated_seconds"] == rows[-1].clock_s and values["hpctrip_running"] == 0


def test_prometheus_has_the_seconds_of_ranks_and_the_joules_of_machines(parsed, facts):
    """Rank 2 reads the counters of the machine that ranks 0 and 2 are on, rank 1 those of another, rank 3 none."""
    callback = Prometheus()
    callback.start(facts(hosts=("here", "there", "here", "nowhere")))
    callback.measured(*totals_of(4, readers=(1, 2)))
    callback.end("finished")
    values = parsed()
    seconds, joules = (
        {series[1:]: value for series, value in values.items() if series[0] == f"hpctrip_{name}_total"}
        for name in ("phase_seconds", "energy_joules")
    )
    assert seconds.keys() == {(rank, phase) for rank in "0123" for phase in PHASES}
    assert joules.keys() == {(host, phase) for host in ("here", "there") for phase in PHASES}
    assert (
        seconds["1", "train"] == 11 and joules["there", "evaluate"] == 130 and joules["here", "record"] == 200
    )
    # the same under OpenTelemetry's names
    assert values["hw_energy_joules_total", "there", ""] == 460


def drawn(rows, facts, *rounds, hosts=("here", "there")):
    """The metrics after rounds of (wall seconds, joules of each machine; None: not known). Rank 0 is alone on the first
    machine and waits, rank 1 trains for a tenth of the round."""
    callback, total_j = Prometheus(), np.full((len(PHASES), len(hosts)), np.nan)
    callback.start(facts(hosts=hosts))
    for wall_s, *joules in rounds:
        known = np.array([np.nan if drawn_j is None else drawn_j / len(PHASES) for drawn_j in joules])
        total_j = np.where(np.isnan(known), total_j, np.nan_to_num(total_j) + np.nan_to_num(known))
        callback.measured(np.full_like(total_j, wall_s / 40), total_j)
        callback.round(replace(rows[0], wall_s=wall_s))
    callback.end("finished")


@pytest.mark.parametrize(
    ("rounds", "here_w", "there_w"),
    [
        ([(10.0, 2500.0, 1000.0)], 250, 100),  # whatever the phases take: waiting draws power, too
        ([(10.0, 2500.0, 1000.0), (4.0, 600.0, 400.0)], 150, 100),  # that of the last round
        ([(10.0, 2500.0, 1000.0), (4.0, None, 400.0)], None, 100),
        (
            [(3.0, 90.0, 30.0), (0.5, 125.0, 50.0), (0.5, None, 75.0), (0.25, 62.5, None)],
            250,
            125,
        ),  # of the last second
    ],
)
def test_power_is_that_of_the_last_round_or_second_whose_joules_are_known(
    parsed, facts, rows, rounds, here_w, there_w
):
    drawn(rows, facts, *rounds)
    values = parsed()
    found = [values.get(("hw_power_watts", host, "")) for host in ("here", "there")]
    assert found == [here_w, there_w]


def test_prometheus_counts_all_rounds_of_a_resumed_run_and_its_ranks_anew(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows[:2]))
    values = parsed()
    assert values["hpctrip_rounds_total", "", ""] == 2 and values["hpctrip_running", "", ""] == 1
    assert values["hpctrip_phase_seconds_total", "0", "train"] == 0
    callback.round(rows[2])
    callback.end("interrupted")
    assert parsed()["hpctrip_rounds_total", "", ""] == 3


def test_runs_whose_files_differ_in_their_ending_alone_share_no_series(facts):
    """node_exporter refuses all files of its folder where two hold the same series."""
    pytest.importorskip("prometheus_client")
    series = []
    for name in ("first.h5", "first.hdf5"):
        callback = Prometheus()
        callback.start(replace(facts(), path=facts().path.with_name(name)))
        samples = (sample for family in callback.collect() for sample in family.samples)
        series.append({(sample.name, *sample.labels.items()) for sample in samples})
    assert series[0] and series[0].isdisjoint(series[1])


def test_prometheus_replaces_no_file_of_another_program(facts):
    place = Path(f"{facts().path}.prom")
    place.write_text("# HELP node_load1 1m load average.")
    with pytest.raises(InputError, match="exists and is not a file of metrics of hpctrip"):
        Prometheus().start(facts())
    assert "node_load1" in place.read_text()


def test_prometheus_leaves_unknown_numbers_out(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts([replace(rows[0], eval_seen=0)]))
    callback.measured(*totals_of(1))
    callback.end("finished")
    names = {name for name, _, _ in parsed()}
    assert "hpctrip_energy_joules_total" not in names and "hpctrip_accuracy" not in names


def test_prometheus_writes_once_a_second_and_at_the_end(facts, rows, monkeypatch):
    pytest.importorskip("prometheus_client")
    written = []
    monkeypatch.setattr("hpctrip.runner.callbacks.prometheus.replace_file", lambda *a, **k: written.append(a))
    callback = Prometheus()
    callback.start(facts())
    for row in rows * 100:
        callback.round(row)
    before = len(written)
    callback.end("finished")
    assert before < 100 and len(written) == before + 1


def test_a_run_writes_for_prometheus_into_the_folder_of_the_input(hpctrip, tiny, tmp_path, parsed):
    folder, run = tmp_path / "collected", tmp_path / "small.h5"
    lines = ("-o", f"callbacks.prometheus.folder='{folder}'", "-o", "meter.assumed_w=40")
    assert hpctrip("run", tiny, *lines, "--out", run).code == 0
    values, rounds = parsed(), open_run(run).rounds
    assert [file.name for file in folder.iterdir()] == ["small.h5.prom"] and values[
        "hpctrip_rounds_total", "", ""
    ] == 3
    for phase in PHASES:
        for metric, owner, unit in (("phase_seconds", "0", "s"), ("energy_joules", hostname(), "j")):
            value = values[f"hpctrip_{metric}_total", owner, phase]
            assert value == pytest.approx(rounds[f"{phase}_wall_{unit}"].sum(), rel=1e-9)


def test_prometheus_names_its_missing_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"prometheus_client not installed.*\[metrics\]"):
        Prometheus().check()


def test_the_dashboard_uses_metrics_and_labels_that_exist(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows))
    callback.measured(*totals_of(1, readers=(0,)))
    callback.end("finished")
    written = {name for name, _, _ in parsed()}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert {name for line in asked for name in re.findall(r"hpctrip_\w+", line)} <= written
    labels = {
        label
        for line in asked
        for group in re.findall(r"(?:by|on) \(([\w, ]+)\)", line)
        for label in group.split(", ")
    }
    assert labels == {"run", "rank", "host", "phase", "instance"} and len(asked) >= 8
