"""The summary, values and CSV files of a results file."""

from __future__ import annotations

import json
import os

import pandas as pd
import pytest
from rich.console import Console

from hpctrip.base.errors import InputError
from hpctrip.record.reader import open_run
from hpctrip.record.show import export, show, summary
from hpctrip.record.writer import write_run
from hpctrip.sim.rounds import History


def test_the_summary_answers_the_usual_questions(run_file):
    facts = summary(open_run(run_file))
    assert facts["status"] == "finished: target accuracy reached"
    assert facts["rounds"] == "3, 0.026 h simulated"
    assert facts["time to accuracy"] == "0.014 h to 20.00%, in round 2"
    assert facts["accuracy"] == "30.00% last, 30.00% best"
    assert facts["held-out loss"] == "1 last (perplexity 2.718)"
    assert facts["cohort"] == "2 sites first, 3 median, 4 last"
    assert (
        facts["wall time"] == "1.5 s: train 0.9, exchange 0.3, evaluate 0.3; hosts idle for 25% of training"
    )
    assert facts["ran on"] == "3 ranks on 2 hosts, transport mpi, engine loop, device cpu"
    assert "(synthetic)" in facts["data"] and "(synthetic)" not in facts["sites"]


def test_a_target_that_was_not_reached_is_said(meta, fake_sites, fake_history, tmp_path):
    write_run(tmp_path / "run.h5", meta | {"target_accuracy": 0.9}, fake_sites(5), fake_history(3, 5))
    assert summary(open_run(tmp_path / "run.h5"))["time to accuracy"] == "90.00% not reached"


def test_a_run_without_rounds_or_a_target_is_shown_too(fake_sites, tmp_path):
    write_run(tmp_path / "run.h5", {}, fake_sites(5), History())
    facts = summary(open_run(tmp_path / "run.h5"))
    assert facts["rounds"] == "none finished yet"
    assert "time to accuracy" not in facts


def test_it_fits_one_screen_and_takes_no_text_for_markup(meta, fake_sites, fake_history, tmp_path):
    path = tmp_path / "run.h5"
    write_run(path, meta | {"scenario": "[red]x[/nothing]"}, fake_sites(5), fake_history(3, 5))
    console = Console(width=80, height=24, file=None, record=True)
    with console.capture() as capture:
        console.print(show(open_run(path)))
    assert "[red]x[/nothing]" in capture.get()
    assert len(capture.get().splitlines()) <= 24


def test_a_file_that_lacks_a_column_is_reported(run_file):
    run = open_run(run_file)
    del run.rounds["idle_fraction"]
    with pytest.raises(InputError, match="/rounds/idle_fraction: is missing"):
        summary(run)


def test_exported_tables_hold_every_digit(run_file, read_back, tmp_path):
    run = open_run(run_file)
    paths = export(run, tmp_path / "csv")
    assert sorted(os.listdir(tmp_path / "csv")) == sorted(path.name for path in paths)
    for name, frame in run.tables.items():
        written = read_back(tmp_path / "csv" / f"{name}.csv", frame)
        pd.testing.assert_frame_equal(written, frame, check_exact=True)


def test_exported_attributes_are_strict_json(fake_sites, tmp_path):
    write_run(tmp_path / "run.h5", {"input_json": '{"seed": 3}'}, fake_sites(5), History())
    export(open_run(tmp_path / "run.h5"), tmp_path / "csv")

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    actual = json.loads((tmp_path / "csv" / "meta.json").read_text(), parse_constant=refuse)
    assert actual["meta"]["target_accuracy"] is None and actual["input"] == {"seed": 3}


def test_a_place_that_cannot_be_written_is_reported(run_file):
    with pytest.raises(InputError, match="cannot be written"):
        export(open_run(run_file), run_file)


def test_what_a_file_says_is_escaped_and_cut_to_a_screen(meta, fake_sites, fake_history, tmp_path):
    path, foreign = tmp_path / "run.h5", "\x1b[31m" + "x" * 100_000
    texts = {
        name: foreign
        for name in ("status", "stop_reason", "scenario", "data_source", "engine", "mpi_library")
    }
    settings = json.dumps({"policy": {"kind": foreign}, "workload": [], "power": {"kind": 3}})
    write_run(path, meta | texts | {"input_json": settings}, fake_sites(5), fake_history(3, 5))
    console = Console(width=80, file=None, record=True)
    with console.capture() as capture:
        console.print(show(open_run(path)))
    assert "\x1b" not in capture.get() and "\\x1b[31mxxx" in capture.get().replace("\n", "")
    assert len(capture.get()) < 4000
