"""Text files for Prometheus, read by its own parser. Skips by name where the extra [metrics] is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.device.meter import PHASES
from hpctrip.ranks.base import hostname
from hpctrip.record.reader import open_run
from hpctrip.runner.callbacks import RunFacts
from hpctrip.runner.callbacks.prometheus import Prometheus

DASHBOARD = Path(__file__).parents[2] / "docs" / "howto" / "grafana.json"


@pytest.fixture(scope="module")
def rows(trained):
    """Three rounds that happened, of which the first was not evaluated."""
    return trained("evaluate.every_rounds=2").history().rows


@pytest.fixture
def parsed(tmp_path):
    """`parsed()`: {(metric, rank or host, phase): value} of the file; every sample has the label of its run."""
    pytest.importorskip(
        "prometheus_client", reason="prometheus_client is not installed (the extra [metrics])"
    )
    from prometheus_client.parser import text_string_to_metric_families

    def read(path=tmp_path / "small.h5.prom"):
        values = {}
        for family in text_string_to_metric_families(path.read_text()):
            assert family.documentation and family.name.startswith("hpctrip_")
            for sample in family.samples:
                assert sample.labels["run"] == "small"
                owner = sample.labels.get("rank", sample.labels.get("host", ""))
                series = sample.name, owner, sample.labels.get("phase", "")
                assert series not in values
                values[series] = sample.value
        return values

    return read


@pytest.fixture
def facts(tmp_path):
    """`facts(rows)`: of a run that has come so far."""

    def build(rounds=(), hosts=("here",)):
        created = "2026-11-22T10:00:00+00:00"
        return RunFacts("tiny", tmp_path / "small.h5", created, {}, tuple(rounds), hosts)

    return build


def totals_of(num_ranks, readers=()):
    """Rank r has spent 10 r + p seconds in phase p, readers ten times as many joules."""
    wall_s = 10.0 * np.arange(num_ranks) + np.arange(len(PHASES))[:, None]
    wall_j = np.full_like(wall_s, np.nan)
    wall_j[:, list(readers)] = 10 * wall_s[:, list(readers)]
    return wall_s, wall_j


def test_the_totals_are_those_of_the_rounds(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts())
    for row in rows:
        callback.round(row)
    assert parsed()["hpctrip_running", "", ""] == 1
    callback.end("finished")
    values = {name: value for (name, rank, _), value in parsed().items() if not rank}
    assert values["hpctrip_rounds_total"] == values["hpctrip_round_seconds_count"] == 3
    assert values["hpctrip_round_seconds_sum"] == pytest.approx(sum(row.wall_s for row in rows))
    assert values["hpctrip_samples_total"] == sum(row.num_samples for row in rows)
    assert values["hpctrip_accuracy"] == rows[-1].accuracy
    assert values["hpctrip_simulated_seconds"] == rows[-1].clock_s and values["hpctrip_running"] == 0


def test_every_rank_has_its_seconds_and_every_machine_its_joules(parsed, facts):
    """Rank 2 reads the counters of the machine that ranks 0 and 2 are on, rank 1 those of another, rank 3 none."""
    callback = Prometheus()
    callback.start(facts(hosts=("here", "there", "here", "nowhere")))
    callback.measured(*totals_of(4, readers=(1, 2)))
    callback.end("finished")
    values = parsed()
    seconds = {
        series[1:]: value for series, value in values.items() if series[0] == "hpctrip_phase_seconds_total"
    }
    joules = {
        series[1:]: value for series, value in values.items() if series[0] == "hpctrip_energy_joules_total"
    }
    assert seconds.keys() == {(rank, phase) for rank in "0123" for phase in PHASES}
    assert joules.keys() == {(host, phase) for host in ("here", "there") for phase in PHASES}
    assert (
        seconds["1", "train"] == 11 and joules["there", "evaluate"] == 130 and joules["here", "record"] == 200
    )


def test_a_run_that_goes_on_goes_on_counting_its_rounds_and_begins_anew_with_its_ranks(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows[:2]))
    assert parsed()["hpctrip_rounds_total", "", ""] == 2
    assert parsed()["hpctrip_phase_seconds_total", "0", "train"] == 0
    callback.round(rows[2])
    callback.end("interrupted")
    assert parsed()["hpctrip_rounds_total", "", ""] == 3


def test_a_file_of_another_program_is_not_replaced(facts, tmp_path):
    place = tmp_path / "small.h5.prom"
    place.write_text("# HELP node_load1 1m load average.")
    with pytest.raises(InputError, match="exists and is no file of metrics of hpctrip"):
        Prometheus().start(facts())
    assert "node_load1" in place.read_text()


def test_what_is_not_known_is_absent_not_zero(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts([replace(rows[0], eval_seen=0)]))
    callback.measured(*totals_of(1))
    callback.end("finished")
    names = {name for name, _, _ in parsed()}
    assert "hpctrip_energy_joules_total" not in names and "hpctrip_accuracy" not in names


def test_rounds_faster_than_a_second_do_not_write_each_time_but_the_last_is_always_there(
    facts, rows, monkeypatch
):
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


def test_a_run_writes_where_it_is_told(hpctrip, tiny, tmp_path, parsed):
    folder, run = tmp_path / "collected", tmp_path / "small.h5"
    lines = ("-o", f"callbacks.prometheus.folder='{folder}'", "-o", "meter.assumed_w=40")
    assert hpctrip("run", tiny, *lines, "--out", run).code == 0
    (file,) = folder.iterdir()
    values, rounds = parsed(file), open_run(run).rounds
    assert file.name == "small.h5.prom" and values["hpctrip_rounds_total", "", ""] == 3
    for phase in PHASES:
        for metric, owner, unit in (("phase_seconds", "0", "s"), ("energy_joules", hostname(), "j")):
            value = values[f"hpctrip_{metric}_total", owner, phase]
            assert value == pytest.approx(rounds[f"{phase}_wall_{unit}"].sum(), rel=1e-9)


def test_without_the_package_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"prometheus_client not installed.*\[metrics\]"):
        Prometheus().check()


def test_the_dashboard_asks_for_metrics_that_are_written_by_their_labels(parsed, facts, rows):
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
