"""What Prometheus' own parser reads back from the text file. Skips by name where the extra [metrics] is missing."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hpctrip.app.callbacks import RunFacts
from hpctrip.app.callbacks.prometheus import PHASES, Prometheus
from hpctrip.base.errors import InputError

DASHBOARD = Path(__file__).parents[2] / "docs" / "howto" / "grafana.json"


@pytest.fixture(scope="module")
def rows(trained):
    """Three rounds that happened, of which the first was not evaluated."""
    return trained("evaluate.every_rounds=2", "meter.assumed_w=40").history().rows


@pytest.fixture
def parsed(tmp_path):
    """`parsed()`: {(metric, phase): value} of the file, whose every sample has the label of its run."""
    pytest.importorskip(
        "prometheus_client", reason="prometheus_client is not installed (the extra [metrics])"
    )
    from prometheus_client.parser import text_string_to_metric_families

    def read(path=tmp_path / "small.h5.prom"):
        found = {}
        for family in text_string_to_metric_families(path.read_text()):
            assert family.documentation and family.name.startswith("hpctrip_")
            for sample in family.samples:
                assert sample.labels["run"] == "small"
                found[sample.name, sample.labels.get("phase", "")] = sample.value
        return found

    return read


@pytest.fixture
def facts(tmp_path):
    """`facts(rows)`: of a run that has come so far."""

    def build(rounds=()):
        return RunFacts("tiny", tmp_path / "small.h5", "2026-11-22T10:00:00+00:00", {}, tuple(rounds))

    return build


def test_the_totals_are_those_of_the_rounds(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts())
    for row in rows:
        callback.round(row)
    assert parsed()["hpctrip_running", ""] == 1
    callback.end("finished")
    found = parsed()
    assert found["hpctrip_rounds_total", ""] == found["hpctrip_round_seconds_count", ""] == 3
    assert found["hpctrip_round_seconds_sum", ""] == pytest.approx(sum(row.wall_s for row in rows))
    assert found["hpctrip_samples_total", ""] == sum(row.num_samples for row in rows)
    for phase in PHASES:
        seconds, joules = ([getattr(row, f"{phase}_wall_{unit}") for row in rows] for unit in "sj")
        assert found["hpctrip_phase_seconds_total", phase] == pytest.approx(sum(seconds))
        assert found["hpctrip_energy_joules_total", phase] == pytest.approx(sum(joules))
    assert found["hpctrip_accuracy", ""] == rows[-1].accuracy
    assert found["hpctrip_simulated_seconds", ""] == rows[-1].clock_s and found["hpctrip_running", ""] == 0


def test_a_run_that_goes_on_goes_on_counting(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows[:2]))
    assert parsed()["hpctrip_rounds_total", ""] == 2
    callback.round(rows[2])
    callback.end("interrupted")
    assert parsed()["hpctrip_rounds_total", ""] == 3


def test_what_is_not_known_is_absent_not_zero(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts([replace(rows[0], wall_j=float("nan"))]))
    names = {name for name, _ in parsed()}
    assert "hpctrip_energy_joules_total" not in names and "hpctrip_accuracy" not in names


def test_rounds_faster_than_a_second_do_not_write_each_time_but_the_last_is_always_there(
    parsed, facts, rows, monkeypatch
):
    written = []
    monkeypatch.setattr("hpctrip.app.callbacks.prometheus.replace_file", lambda *a, **k: written.append(a))
    callback = Prometheus()
    callback.start(facts())
    for row in rows * 100:
        callback.round(row)
    before = len(written)
    callback.end("finished")
    assert before < 100 and len(written) == before + 1


def test_a_run_writes_it_where_it_is_told(hpctrip, tiny, tmp_path, parsed):
    path = tmp_path / "collected" / "node.prom"
    words = ["run", tiny, "-o", f"callbacks.prometheus.path='{path}'", "--out", tmp_path / "small.h5"]
    assert hpctrip(*words).code == 0
    assert parsed(path)["hpctrip_rounds_total", ""] == 3 and [*path.parent.iterdir()] == [path]


def test_a_file_that_the_collector_would_not_read_is_refused(hpctrip, tiny):
    hpctrip("check", tiny, "-o", "callbacks.prometheus.path='x.txt'").check_refused(["must end in .prom"])


def test_without_the_package_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"prometheus_client not installed.*\[metrics\]"):
        Prometheus().check()


def test_the_dashboard_asks_for_metrics_that_are_written(parsed, facts, rows):
    callback = Prometheus()
    callback.start(facts(rows))
    written = {name for name, _ in parsed()}
    asked = set(re.findall(r"hpctrip_\w+", DASHBOARD.read_text()))
    assert asked - written == set() and len(json.loads(DASHBOARD.read_text())["panels"]) >= 8
