"""What Prometheus' own parser reads back from the text files. Skips by name where the extra [metrics] is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpctrip.app.callbacks import RunFacts
from hpctrip.app.callbacks.prometheus import Prometheus
from hpctrip.app.rank_totals import RankTotals
from hpctrip.base.errors import InputError
from hpctrip.device.meter import PHASES
from hpctrip.ranks.base import hostname
from hpctrip.record.reader import open_run

DASHBOARD = Path(__file__).parents[2] / "docs" / "howto" / "grafana.json"


@pytest.fixture(scope="module")
def rows(trained):
    """Three rounds that happened, of which the first was not evaluated."""
    return trained("evaluate.every_rounds=2").history().rows


@pytest.fixture
def parsed(tmp_path):
    """`parsed()`: {(metric, rank, phase): value} of the file, whose every sample has the label of its run."""
    pytest.importorskip(
        "prometheus_client", reason="prometheus_client is not installed (the extra [metrics])"
    )
    from prometheus_client.parser import text_string_to_metric_families

    def read(path=tmp_path / "small.h5.here.prom"):
        found = {}
        for family in text_string_to_metric_families(path.read_text()):
            assert family.documentation and family.name.startswith("hpctrip_")
            for sample in family.samples:
                assert sample.labels["run"] == "small"
                series = sample.name, sample.labels.get("rank", ""), sample.labels.get("phase", "")
                assert series not in found
                found[series] = sample.value
        return found

    return read


@pytest.fixture
def facts(tmp_path):
    """`facts(rows)`: of a run that has come so far."""

    def build(rounds=(), hosts=("here",), rank=0):
        created = "2026-11-22T10:00:00+00:00"
        return RunFacts("tiny", tmp_path / "small.h5", created, {}, tuple(rounds), hosts, rank)

    return build


def totals_of(num_ranks, readers=()):
    """Rank r has spent 10 r + p seconds in phase p, readers ten times as many joules."""
    wall_s = 10.0 * np.arange(num_ranks) + np.arange(len(PHASES))[:, None]
    wall_j = np.full_like(wall_s, np.nan)
    wall_j[:, list(readers)] = 10 * wall_s[:, list(readers)]
    return RankTotals(wall_s, wall_j)


def test_the_totals_are_those_of_the_rounds(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts())
    for row in rows:
        callback.round(row)
    assert parsed()["hpctrip_running", "", ""] == 1
    callback.end("finished")
    found = {name: value for (name, rank, _), value in parsed().items() if not rank}
    assert found["hpctrip_rounds_total"] == found["hpctrip_round_seconds_count"] == 3
    assert found["hpctrip_round_seconds_sum"] == pytest.approx(sum(row.wall_s for row in rows))
    assert found["hpctrip_samples_total"] == sum(row.num_samples for row in rows)
    assert found["hpctrip_accuracy"] == rows[-1].accuracy
    assert found["hpctrip_simulated_seconds"] == rows[-1].clock_s and found["hpctrip_running"] == 0


def test_each_machine_tells_of_its_own_ranks_and_that_of_rank_0_alone_of_the_run(
    parsed, facts, rows, tmp_path
):
    """Rank 2 reads the counters of the machine that ranks 0 and 2 are on, rank 1 those of the other."""
    hosts, totals = ("here", "there", "here"), totals_of(3, readers=(1, 2))
    for rank in (0, 1):
        callback = Prometheus()
        callback.start(facts(hosts=hosts, rank=rank))
        callback.ranks(totals)
        if rank == 0:
            callback.round(rows[0])
        callback.end("finished")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.h5.here.prom", "small.h5.there.prom"]
    here, there = parsed(), parsed(tmp_path / "small.h5.there.prom")
    assert not here.keys() & there.keys()  # also where one collector reads both
    assert {name for name, _, _ in there} == {"hpctrip_phase_seconds_total", "hpctrip_energy_joules_total"}
    assert there["hpctrip_phase_seconds_total", "1", "train"] == 11
    assert there["hpctrip_energy_joules_total", "1", "evaluate"] == 130
    joules = {rank for name, rank, _ in here if name == "hpctrip_energy_joules_total"}
    seconds = {(rank, phase) for name, rank, phase in here if name == "hpctrip_phase_seconds_total"}
    assert joules == {"2"} and seconds == {(rank, phase) for rank in "02" for phase in PHASES}


def test_a_run_that_goes_on_goes_on_counting_its_rounds_and_begins_anew_with_its_ranks(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows[:2]))
    assert parsed()["hpctrip_rounds_total", "", ""] == 2
    assert parsed()["hpctrip_phase_seconds_total", "0", "train"] == 0
    callback.round(rows[2])
    callback.end("interrupted")
    assert parsed()["hpctrip_rounds_total", "", ""] == 3


def test_what_the_run_has_left_for_machines_on_which_it_does_not_go_on_is_removed(facts, tmp_path):
    pytest.importorskip("prometheus_client")
    stays = {"small.h5.there.prom", "small.h5.gone.prom.gz", "other.h5.gone.prom", "small.prom"}
    for name in {*stays, "small.h5.gone.prom", f"small.h5.here.prom.{16 * 'a'}.tmp"}:
        (tmp_path / name).touch()
    Prometheus().start(facts(hosts=("here", "there")))
    assert {path.name for path in tmp_path.iterdir()} == {*stays, "small.h5.here.prom"}


def test_a_file_of_another_program_is_not_replaced(facts, tmp_path):
    place = tmp_path / "small.h5.here.prom"
    place.write_text("# HELP node_load1 1m load average.")
    with pytest.raises(InputError, match="exists and is no file of metrics of hpctrip"):
        Prometheus().start(facts())
    assert "node_load1" in place.read_text()


def test_what_is_not_known_is_absent_not_zero(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts([replace(rows[0], eval_seen=0)]))
    callback.ranks(totals_of(1))
    callback.end("finished")
    names = {name for name, _, _ in parsed()}
    assert "hpctrip_energy_joules_total" not in names and "hpctrip_accuracy" not in names


def test_rounds_faster_than_a_second_do_not_write_each_time_but_the_last_is_always_there(
    facts, rows, monkeypatch
):
    pytest.importorskip("prometheus_client")
    written = []
    monkeypatch.setattr("hpctrip.app.callbacks.prometheus.replace_file", lambda *a, **k: written.append(a))
    callback = Prometheus()
    callback.start(facts())
    for row in rows * 100:
        callback.round(row)
    before = len(written)
    callback.end("finished")
    assert before < 100 and len(written) == before + 1


def test_a_run_writes_where_it_is_told(hpctrip, tiny, tmp_path, parsed):
    folder, run = tmp_path / "collected", tmp_path / "small.h5"
    lines = ("-o", f"callbacks.prometheus.folder='{folder}'", "-o", "meter.assumed_w=40")
    assert hpctrip("run", tiny, *lines, "--out", run).code == 0
    (file,) = folder.iterdir()
    found, rounds = parsed(file), open_run(run).rounds
    assert file.name == f"small.h5.{hostname()}.prom" and found["hpctrip_rounds_total", "", ""] == 3
    for phase in PHASES:
        for metric, unit in (("phase_seconds", "s"), ("energy_joules", "j")):
            value = found[f"hpctrip_{metric}_total", "0", phase]
            assert value == pytest.approx(rounds[f"{phase}_wall_{unit}"].sum(), rel=1e-9)


def test_a_resumed_run_goes_on_in_its_file(hpctrip, tiny, tmp_path, parsed):
    run, file = tmp_path / "small.h5", tmp_path / f"small.h5.{hostname()}.prom"
    lines = ("-o", "callbacks.prometheus={}", "-o")
    assert hpctrip("run", tiny, *lines, "stop.max_rounds=2", "--out", run).code == 0
    assert hpctrip("resume", run, *lines, "stop.max_rounds=3").code == 0
    found, rounds = parsed(file), open_run(run).rounds
    assert found["hpctrip_rounds_total", "", ""] == 3 and found["hpctrip_running", "", ""] == 0
    assert found["hpctrip_phase_seconds_total", "0", "train"] == pytest.approx(rounds["train_wall_s"][2])
    assert [*tmp_path.glob("*.prom")] == [file]


@pytest.mark.mpi
def test_under_ranks_every_rank_has_its_series_and_one_of_them_the_joules(launch, tiny, tmp_path, parsed):
    lines = ("-o", "callbacks.prometheus={}", "-o", "meter.assumed_w=40")
    ended = launch(3, "run", tiny, *lines, "--out", tmp_path / "small.h5")
    assert ended.code == 0, ended.err
    found = parsed(tmp_path / f"small.h5.{hostname()}.prom")
    seconds = [found["hpctrip_phase_seconds_total", str(rank), "train"] for rank in range(3)]
    assert 0 <= seconds[0] < min(seconds[1:])
    assert {rank for name, rank, _ in found if name == "hpctrip_energy_joules_total"} == {"1"}


def test_without_the_package_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"prometheus_client not installed.*\[metrics\]"):
        Prometheus().check()


def test_the_dashboard_asks_for_metrics_that_are_written_by_their_labels(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows))
    callback.ranks(totals_of(1, readers=(0,)))
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
    assert labels == {"run", "rank", "phase", "instance"} and len(asked) >= 8
