"""Round callbacks: called for every round once, in order, at rank 0; a fault of theirs does not reach the run."""

from __future__ import annotations

import contextlib
import inspect
import json
import sqlite3
import textwrap
import threading
from typing import Any, ClassVar

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.config.inputs import resolved_toml
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.runner.callbacks import CALLBACKS, Callback, RunFacts
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.experiment import read_input

PLUGIN = '''
import os
from hpctrip.runner.callbacks import CALLBACKS, Callback


@CALLBACKS.add
class Diary(Callback):
    """Records every call and the process in which it was made."""

    kind = "diary"
    path: str

    def note(self, *words):
        with open(self.path, "a") as file:
            print(*words, "in", os.getpid(), file=file)

    def start(self, run):
        self.note("start", run.name, run.path.name, run.input["stop"]["max_rounds"], len(run.rounds))

    def round(self, row):
        self.note("round", row.round, row.accuracy, len(row.cohort.site))

    def end(self, status):
        self.note("end", status)


@CALLBACKS.add
class Broken(Callback):
    """Has a fault."""

    kind = "broken"

    def round(self, row):
        if row.round == 2:
            raise RuntimeError("no such\\nthing")


@CALLBACKS.add
class Quitter(Callback):
    """Wants to end the process."""

    kind = "quitter"

    def start(self, run):
        raise SystemExit(7)
'''
INPUT = """
plugins = ["mine.py"]
checkpoint.every_rounds = 1

[callbacks]
jsonl = {}
broken = {}
quitter = {}
off = {kind = "broken", enabled = false}
diary.path = "DIARY"
"""
_, _, _CODE = inspect.getdoc(Callback).partition("plug-in:\n\n")
EXAMPLE, _, EXAMPLE_INPUT = map(textwrap.dedent, _CODE.partition("and in the input:\n\n"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, hpctrip, tiny):
    """A run of two rounds with all of these: its folder, and how it ended."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "mine.toml").write_text(INPUT.replace("DIARY", str(folder / "diary")))
    before = dict(CALLBACKS)
    lines = ("-o", "stop.max_rounds=2")
    yield folder, hpctrip("run", tiny, folder / "mine.toml", *lines, "--out", folder / "run.h5")
    CALLBACKS.clear()
    CALLBACKS.update(before)


@pytest.fixture(scope="module")
def rows(recorded):
    """Two rounds that happened."""
    return open_run(recorded[0] / "run.h5").history().rows


def notes_of(folder):
    return [line.partition(" in ")[0] for line in (folder / "diary").read_text().splitlines()]


def lines_of(folder):
    return [json.loads(line) for line in (folder / "run.h5.jsonl").read_text().splitlines()]


def test_a_callback_is_called_at_the_start_after_every_round_and_at_the_end(recorded, rows):
    folder, ended = recorded
    assert ended.code == 0, ended.err
    assert notes_of(folder) == [
        "start tiny run.h5 2 0",
        *(f"round {row.round} {row.accuracy} {row.num_sites}" for row in rows),
        "end finished",
    ]


def test_an_error_of_a_callback_is_one_line_that_names_it_and_the_round(recorded):
    warnings = [line for line in recorded[1].out.splitlines() if line.startswith("warning: callbacks.")]
    assert sorted(warnings) == [
        "warning: callbacks.broken, round 2: RuntimeError: no such thing; it is not called again",
        "warning: callbacks.quitter, start: SystemExit: 7; it is not called again",
    ]
    assert not recorded[1].err


def test_the_run_is_the_same_with_and_without_callbacks(recorded, trained):
    run, plain = open_run(recorded[0] / "run.h5"), trained("stop.max_rounds=2")
    assert run.meta["params_digest"] == plain.meta["params_digest"]
    assert run.cohorts["site"].tolist() == plain.cohorts["site"].tolist() and verify(run) == []


def test_the_example_in_the_documentation_ends_a_run(hpctrip, tiny, tmp_path, rows):
    """The round in progress when a callback asks for the end is finished; the same command then has nothing to do."""
    assert sum(map(bool, EXAMPLE.splitlines())) <= 12
    (tmp_path / "example.py").write_text(EXAMPLE)
    (tmp_path / "example.toml").write_text('plugins = ["example.py"]\n' + EXAMPLE_INPUT)
    out = tmp_path / "run.h5"
    command = ("run", tiny, tmp_path / "example.toml", "-o", "callbacks.loss_limit.limit=0.001", "--out", out)
    reason = f"callbacks.loss_limit: training loss {rows[0].train_loss:.1f} after round 1"
    ended = hpctrip(*command, "--resume")
    assert ended.code == 0 and f"stopped: {reason}, after 2 rounds" in ended.out, ended
    run = open_run(out)
    assert (run.status, run.meta["stop_reason"], len(run.rounds)) == ("finished", reason, 2)
    assert verify(run) == []
    assert "is finished already" in hpctrip(*command, "--resume").out


def test_a_line_of_json_holds_the_numbers_of_a_round(recorded, rows):
    lines = lines_of(recorded[0])
    assert [line["round"] for line in lines] == [1, 2]
    assert lines[1]["accuracy"] == rows[1].accuracy and lines[1]["clock_s"] == rows[1].clock_s
    assert "cohort" not in lines[1] and "candidates" not in lines[1]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("inp.toml", "inp.toml: exists and is not a file of a run's rounds as JSON"),
        ("run.h5", "run.h5: is the results file of the run"),
    ],
)
def test_jsonl_replaces_no_other_file(path, message, hpctrip, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inp.toml").write_text(tiny.read_text())
    hpctrip("run", "inp.toml", "--out", "run.h5", "-o", f"callbacks.jsonl={{path={path!r}}}").check_refused(
        [message]
    )
    assert {file.name for file in tmp_path.iterdir()} == {"inp.toml"}
    assert (tmp_path / "inp.toml").read_text() == tiny.read_text()


@pytest.mark.parametrize("content", ["", '{"round": 1}\n{"rou', "text", "[1]"])
def test_jsonl_recognises_its_own_file_by_the_first_line(content, tmp_path):
    (tmp_path / "run.h5.jsonl").write_text(content)
    refused = contextlib.nullcontext()
    if content and "round" not in content:
        refused = pytest.raises(InputError, match=r"remove it, or name another by callbacks\.jsonl\.path")
    with refused:
        CALLBACKS["jsonl"]().check_outputs(tmp_path / "run.h5")


def test_a_resumed_run_reports_only_new_rounds_and_repeats_no_line(recorded, hpctrip):
    """An earlier start was killed after it had told of round 3 and before it saved it."""
    folder, _ = recorded
    with open(folder / "run.h5.jsonl", "a") as file:
        file.write('{"round": 3, "accuracy": 0.5}\n{"rou')
    (folder / "diary").unlink()
    ended = hpctrip("resume", folder / "run.h5", folder / "mine.toml", "-o", "stop.max_rounds=4")
    assert ended.code == 0, ended.err
    assert [line["round"] for line in lines_of(folder)] == [1, 2, 3, 4]
    first, *others = notes_of(folder)
    assert first == "start tiny run.h5 4 2"
    assert [" ".join(note.split()[:2]) for note in others] == ["round 3", "round 4", "end finished"]


def test_a_run_that_fails_before_its_first_round_leaves_the_lines_of_an_earlier_run(rows, tmp_path):
    facts = RunFacts("tiny", tmp_path / "run.h5", "2026-11-22T10:00:00+00:00", {})
    for reported in (rows[:1], (), rows):
        callback, before = CALLBACKS["jsonl"](), tmp_path.joinpath("run.h5.jsonl")
        text = before.read_text() if before.exists() else ""
        callback.start(facts)
        assert not text or before.read_text() == text
        for row in reported:
            callback.round(row)
        callback.end("failed")
        assert len(lines_of(tmp_path)) == (len(reported) or 1)


FREE = threading.Event()
TOTALS = np.zeros((4, 1)), np.zeros((4, 1))


def calls(callbacks, folder, warnings):
    """These callbacks of a run that has just begun; warnings go to the list `warnings`."""
    return Callbacks(callbacks, RunFacts("tiny", folder, "", {}), warnings.append)


class Stuck(Callback):
    """Does not return from its first round."""

    def round(self, row):
        FREE.wait()


class Nameless(Exception):
    def __str__(self):
        raise RuntimeError


class Unprintable(Callback):
    """Raises an error whose description raises another."""

    def round(self, row):
        raise Nameless


class Wants(Callback):
    """Asks for an end from round 2 on."""

    start_limit_s: ClassVar[float] = 60.0
    answer: Any

    def round(self, row):
        return self.answer if row.round >= 2 else None


@pytest.mark.parametrize(
    ("callback", "fault"),
    [
        (Stuck(), "round 1: TimeoutError: not done within 0.1 s"),
        (Unprintable(), "round 1: Nameless: no text"),
        (Wants(answer=True), "round 2: TypeError: round() returned bool, not a text or None"),
    ],
)
def test_a_callback_that_fails_is_reported_once_and_not_called_again(
    callback, fault, rows, tmp_path, monkeypatch
):
    monkeypatch.setattr("hpctrip.runner.callbacks.base.LIMIT_S", 0.1)
    callbacks = calls({"mine": callback}, tmp_path, warnings := [])
    assert [callbacks.round(row, *TOTALS) for row in (*rows, rows[0])] == [""] * 3
    callbacks.end("finished")
    assert warnings == [f"warning: callbacks.mine, {fault}; it is not called again"]
    FREE.set()


class Database(Callback):
    """Keeps the rounds in SQLite, whose connections work in the thread alone that has opened them."""

    _database: Any = None

    def start(self, run):
        self._database = sqlite3.connect(":memory:")
        self._database.execute("CREATE TABLE rounds (round INTEGER)")

    def measured(self, wall_s, wall_j):
        self._database.execute("SELECT * FROM rounds")

    def round(self, row):
        self._database.execute("INSERT INTO rounds VALUES (?)", (row.round,))

    def end(self, status):
        assert self._database.execute("SELECT count(*) FROM rounds").fetchone() == (2,)
        self._database.close()
        raise RuntimeError("both rounds were there")


def test_all_calls_of_a_callback_are_made_in_one_thread_which_ends_with_the_run(rows, tmp_path):
    before = set(threading.enumerate())
    callbacks = calls({"mine": Database(), "other": Callback()}, tmp_path, warnings := [])
    workers = set(threading.enumerate()) - before
    assert [callbacks.round(row, *TOTALS) for row in rows] == ["", ""] and warnings == []
    callbacks.end("finished")
    assert warnings == [
        "warning: callbacks.mine, end: RuntimeError: both rounds were there; it is not called again"
    ]
    for worker in workers:
        worker.join(60)
    assert len(workers) == 2 and not any(worker.is_alive() for worker in workers)


def test_ctrl_c_during_a_callback_ends_the_run(rows, tmp_path, monkeypatch):
    def interrupted(future, limit_s):
        raise KeyboardInterrupt

    callbacks = calls({"any": Callback()}, tmp_path, warnings := [])
    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        callbacks.round(rows[0], *TOTALS)
    assert warnings == []


def test_the_first_reason_for_an_end_counts_and_is_one_line_that_names_the_callback(rows, tmp_path):
    wants = {"quiet": Wants(answer=""), "a": Wants(answer="enough\nnow"), "b": Wants(answer="other")}
    callbacks = calls(wants, tmp_path, warnings := [])
    assert [callbacks.round(row, *TOTALS) for row in rows] == ["", "callbacks.a: enough now"]
    assert warnings == []


def test_the_kind_of_a_callback_is_by_default_the_name_of_its_table():
    run_input = read_input([], ["callbacks.jsonl.path='a'", "callbacks.second={kind='jsonl', path='b'}"])
    assert {name: (c.kind, c.path) for name, c in run_input.experiment.callbacks.items()} == {
        "jsonl": ("jsonl", "a"),
        "second": ("jsonl", "b"),
    }
    assert 'callbacks.second]\nkind = "jsonl"' in resolved_toml(run_input.experiment)


WRONG = {
    "callbacks.jsnl={}": "callbacks.jsnl.kind = 'jsnl': unknown callback; did you mean 'jsonl'?",
    "callbacks=3": "callbacks = 3: must be a table",
    "callbacks.jsonl=3": "callbacks.jsonl = 3: must be a table",
    "callbacks.jsonl.pth='x'": "callbacks.jsonl.pth: unknown key; did you mean 'path'?",
    'callbacks."a b".kind="jsonl"': "callbacks.a b = 'a b': String should match",
    "callbacks.mlflow.tracking_uri='http://me:secret@host'": "use $MLFLOW_TRACKING_USERNAME",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_table_is_one_clear_line(line):
    with pytest.raises(InputError) as refused:
        read_input([], [line])
    assert WRONG[line] in str(refused.value) and len(refused.value.faults) == 1


class Failing(Callback):
    """A plug-in's callback whose check fails."""

    kind: ClassVar[str] = "failing"

    def check(self):
        raise ZeroDivisionError("nothing to divide by")


@pytest.mark.parametrize("kind", ["mlflow", "tensorboard", "failing"])
def test_a_callback_whose_check_fails_is_one_line_at_check_and_at_the_start(
    kind, hpctrip, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    CALLBACKS.add(Failing)
    fragments = [f'callbacks: kind = "{kind}": {kind}', "not installed", f".[{kind}]'"]
    if kind == "failing":
        fragments = ["callbacks.failing: fails before the run: ZeroDivisionError: nothing to divide by"]
    line, path = f"callbacks.{kind}={{}}", tmp_path / "run.h5"
    for ended in (hpctrip("check", tiny, "-o", line), hpctrip("run", tiny, "-o", line, "--out", path)):
        ended.check_refused(fragments)
    assert not path.exists()
    off = ("-o", f"callbacks.{kind}.enabled=false")
    assert hpctrip("check", tiny, "-o", line, *off).code == 0


def test_a_fault_of_a_callback_that_comes_with_hpctrip_is_no_bad_input(hpctrip, tiny, monkeypatch):
    monkeypatch.setattr(CALLBACKS["jsonl"], "check", Failing.check)
    ended = hpctrip("check", tiny, "-o", "callbacks.jsonl={}")
    assert ended.code == 70 and "ZeroDivisionError" in ended.err and "please report it" in ended.err


def test_keys_describes_the_callbacks(hpctrip):
    ended = hpctrip("keys", "callbacks")
    assert "# `[callbacks]`" in ended.out and "`[callbacks.tensorboard]`" in ended.out
    assert "tracking_uri" in ended.out
