"""The summary, values and CSV files of a results file."""

from __future__ import annotations

import io
import json
import os

import h5py
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.base.errors import InputError
from hpctrip.record import export as exported
from hpctrip.record import reader
from hpctrip.record.export import export
from hpctrip.record.formats import csv_bytes
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import open_run
from hpctrip.record.results_file import open_results
from hpctrip.record.show import facts_of, show, summary
from hpctrip.sim.rounds import History


def test_the_summary_answers_the_usual_questions(run_file):
    facts = summary(open_run(run_file))
    assert facts["status"] == "finished: target accuracy reached"
    assert facts["rounds"] == "3, 0.026 h simulated"
    assert facts["time to accuracy"] == "0.014 h to 20.00%, in round 2"
    assert facts["accuracy"] == "30.00% last, 30.00% best"
    assert facts["held-out loss"] == "1 last"
    assert facts["cohort"] == "2 sites first, 3 median, 4 last"
    assert (
        facts["wall time"] == "1.5 s: train 0.9, exchange 0.3, evaluate 0.3; hosts idle for 25% of training"
    )
    assert facts["ran on"] == "3 ranks on 2 hosts, transport mpi, engine loop, device cpu"
    assert "(synthetic)" in facts["data"] and "(synthetic)" not in facts["sites"]


@pytest.mark.parametrize(("kind", "shown"), [("llm", "1 last (perplexity 2.718)"), ("speech", "1 last")])
def test_perplexity_is_that_of_language(written, kind, shown):
    assert summary(written(input_json=f'{{"workload": {{"kind": "{kind}"}}}}'))["held-out loss"] == shown


def test_a_target_that_was_not_reached_is_shown(written):
    assert summary(written(target_accuracy=0.9))["time to accuracy"] == "90.00% not reached"


@pytest.mark.parametrize("of_policy", [True, False], ids=["the objective's", "of any policy"])
@pytest.mark.parametrize(
    ("asked_h", "target", "status", "text"),
    [
        (0.015, 0.2, "finished", "met: asked 0.015 h, took 0.0144 h"),
        (0.01, 0.2, "finished", "missed: asked 0.01 h, took 0.0144 h"),
        (8, 0.9, "finished", "missed: asked 8 h, target not reached in 0.0258 h"),
        (8, 0.9, "running", "asked 8 h, target not reached in 0.0258 h"),
        (0.02, 0.9, "running", "missed: asked 0.02 h, target not reached in 0.0258 h"),
    ],
)
def test_a_deadline_that_was_missed_is_shown(written, asked_h, target, status, text, of_policy):
    deadline = {"deadline_s": 3600 * asked_h}
    of_random = {"policy": {"kind": "random"}, "stop": deadline}
    of_objective = {"policy": {"kind": "powertrip", "objective": {"kind": "deadline", **deadline}}}
    tables = of_objective if of_policy else of_random
    run = written(target_accuracy=target, status=status, input_json=json.dumps(tables))
    assert summary(run)["deadline"] == text


def test_a_run_without_rounds_or_a_target_is_shown_too(written):
    facts = summary(written(History(), target_accuracy=float("nan")))
    assert facts["rounds"] == "none finished yet"
    assert "time to accuracy" not in facts


def test_it_fits_one_screen_and_takes_no_text_for_markup(written):
    screen = show(written(scenario="[red]x[/nothing]"), width=80)
    assert "[red]x[/nothing]" in screen
    assert len(screen.splitlines()) <= 24 and max(map(len, screen.splitlines()[1:])) <= 80


def test_exported_tables_hold_every_digit(run_file, read_back, tmp_path):
    run = open_run(run_file)
    paths = export(run_file, tmp_path / "csv")
    assert sorted(os.listdir(tmp_path / "csv")) == sorted(path.name for path in paths)
    for name, frame in run.tables.items():
        written = read_back(tmp_path / "csv" / f"{name}.csv", frame)
        pd.testing.assert_frame_equal(written, frame, check_exact=True)


def test_exported_attributes_are_strict_json(written, tmp_path):
    empty = written(History(), input_json='{"seed": 3}', target_accuracy=float("nan"))
    export(empty.path, tmp_path / "csv")

    def refuse(constant):
        raise AssertionError(f"{constant} is not valid JSON")

    actual = json.loads((tmp_path / "csv" / "meta.json").read_text(), parse_constant=refuse)
    assert actual["meta"]["target_accuracy"] is None and actual["input"] == {"seed": 3}


def test_a_place_that_cannot_be_written_is_reported(run_file):
    with pytest.raises(InputError, match="cannot be written"):
        export(run_file, run_file)


def test_tables_are_exported_some_rows_at_a_time(run_file, tmp_path, monkeypatch):
    together = set()

    def counted(columns, **options):
        if "description" not in columns:  # columns.csv
            together.add(len(next(iter(columns.values()))))
        return csv_bytes(columns, **options)

    monkeypatch.setattr(exported, "ROWS", 2)
    monkeypatch.setattr(exported, "csv_bytes", counted)
    export(run_file, tmp_path / "csv")
    assert together == {1, 2}
    for name, frame in open_run(run_file).tables.items():
        assert (tmp_path / "csv" / f"{name}.csv").read_bytes() == csv_bytes(frame)


@given(st.lists(st.floats() | st.floats(1e-6, 1e-3) | st.floats(1e14, 1e18), min_size=1))
def test_numbers_are_exported_as_python_writes_them(values):
    values = [*values, 1.0]
    cells = ['""' if np.isnan(x) else repr(x).replace("inf", "1e999") for x in values]
    assert csv_bytes({"x": np.array(values)}).decode().splitlines() == ["x", *cells]


def test_a_column_without_a_known_number_is_still_one_of_numbers():
    """Readers guess types from cells: an empty column is a text, and inf a text or, in DuckDB, a date."""
    table = {"unknown": np.full(2, np.nan), "no_limit": np.full(2, np.inf), "late": np.array([np.nan, 3.0])}
    text = csv_bytes(table).decode()
    assert text.splitlines()[1:] == ["NaN,1e999,", "NaN,1e999,3.0"]
    frame = pd.read_csv(io.StringIO(text))
    assert set(frame.dtypes) == {np.dtype("f8")} and np.isinf(frame["no_limit"]).all()


def test_an_export_tells_units_and_is_parquet_where_asked(run_file, tmp_path, hpctrip):
    pytest.importorskip("pyarrow")
    assert hpctrip("export", run_file, tmp_path / "out", "--parquet").code == 0
    columns = pd.read_csv(tmp_path / "out/columns.csv", dtype=str).set_index(["table", "column"])
    for name, frame in open_run(run_file).tables.items():
        stored = pd.read_parquet(tmp_path / "out" / f"{name}.parquet")
        pd.testing.assert_frame_equal(stored, frame, check_dtype=False)
        assert stored.attrs["units"] == frame.attrs["units"] == columns.loc[name]["unit"].to_dict()
    assert columns.loc["rounds", "clock_s"]["description"] == "simulated time at the round's end"


def test_nothing_is_exported_from_a_damaged_table(run_file, tmp_path):
    with h5py.File(run_file, "r+") as file:
        file["rounds_sites/site"][0] = 4
    with pytest.raises(DamagedError, match="/rounds_sites does not match its checksum"):
        export(run_file, tmp_path / "csv")
    assert not (tmp_path / "csv").exists()


def test_show_reads_no_rows_of_cohorts(run_file, hpctrip, monkeypatch):
    read, read_frame = [], reader.read_frame
    monkeypatch.setattr(
        reader, "read_frame", lambda group, *others: read.append(group.name) or read_frame(group, *others)
    )
    assert "3, 0.026 h simulated" in hpctrip("show", run_file).out
    assert sorted(read) == ["/rounds", "/sites"]
    assert str(facts_of(open_results(run_file, whole=False))) == str(facts_of(open_run(run_file)))


def test_texts_of_a_file_are_escaped_and_cut_to_a_screen(written):
    text = "\x1b[31m" + "x" * 100_000
    names = ("status", "stop_reason", "scenario", "data_source", "engine", "mpi_library")
    settings = json.dumps({"policy": {"kind": text}, "workload": [], "power": {"kind": 3}})
    screen = show(written(**dict.fromkeys(names, text), input_json=settings), width=80)
    assert "\x1b" not in screen and "\\x1b[31mxxx" in screen.replace("\n", "")
    assert len(screen) < 4000
