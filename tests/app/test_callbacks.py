"""Round callbacks: told of every round once, in order, at rank 0; whatever they do, the run is the same."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import textwrap
import threading

import pytest

from hpctrip.app.callbacks import CALLBACKS, Callback, RunFacts
from hpctrip.app.callbacks.machines import elsewhere
from hpctrip.app.callbacks.thread import Callbacks
from hpctrip.app.experiment import read_input
from hpctrip.app.rank_totals import RankTotals
from hpctrip.base.errors import InputError, InterruptedRun
from hpctrip.ranks.base import EndedByAggregator
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

PLUGIN = '''
import os
from hpctrip.app.callbacks import CALLBACKS, Callback


@CALLBACKS.add
class Diary(Callback):
    """Writes what it is told, and in which process."""

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
class Vandal(Callback):
    """Writes into what it is given."""

    kind = "vandal"

    def round(self, row):
        row.cohort.site[:] = 0


@CALLBACKS.add
class Quitter(Callback):
    """Wants to end the process."""

    kind = "quitter"

    def start(self, run):
        raise SystemExit(7)
'''
INPUT = """
plugins = ["mine.py", "example.py"]
checkpoint.every_rounds = 1

[callbacks]
jsonl = {}
broken = {}
vandal = {}
quitter = {}
off = {kind = "broken", enabled = false}
diary.path = "DIARY"
"""
_, _, _CODE = inspect.getdoc(Callback).partition("plug-in:\n\n")
EXAMPLE, _, EXAMPLE_INPUT = map(textwrap.dedent, _CODE.partition("and in the input:\n\n"))


@pytest.fixture(scope="module")
def told(tmp_path_factory, hpctrip, tiny):
    """A run of two rounds with all of these: its folder, and how it ended."""
    folder = tmp_path_factory.mktemp("told")
    (folder / "mine.py").write_text(PLUGIN)
    (folder / "example.py").write_text(EXAMPLE)
    (folder / "mine.toml").write_text(INPUT.replace("DIARY", str(folder / "diary")) + EXAMPLE_INPUT)
    before = dict(CALLBACKS)
    lines = ("-o", "stop.max_rounds=2", "-o", "callbacks.rises.step=0.001")
    yield folder, hpctrip("run", tiny, folder / "mine.toml", *lines, "--out", folder / "run.h5")
    CALLBACKS._classes = before


@pytest.fixture(scope="module")
def rows(told):
    """Two rounds that happened."""
    return open_run(told[0] / "run.h5").history().rows


def notes_of(folder):
    return [line.partition(" in ")[0] for line in (folder / "diary").read_text().splitlines()]


def lines_of(folder):
    return [json.loads(line) for line in (folder / "run.h5.jsonl").read_text().splitlines()]


def test_a_callback_is_told_of_the_start_every_round_and_the_end_in_order(told, rows):
    folder, ended = told
    assert ended.code == 0, ended.err
    assert notes_of(folder) == [
        "start tiny run.h5 2 0",
        *(f"round {row.round} {row.accuracy} {row.num_sites}" for row in rows),
        "end finished",
    ]


def test_its_fault_is_said_once_in_one_line_that_names_it_and_the_round(told):
    said = [line for line in told[1].out.splitlines() if line.startswith("warning: callbacks.")]
    assert sorted(said) == [
        "warning: callbacks.broken, round 2: RuntimeError: no such thing; it is not called again",
        "warning: callbacks.quitter, start: SystemExit: 7; it is not called again",
        "warning: callbacks.vandal, round 1: ValueError: assignment destination is read-only; it is not called again",
    ]
    assert not told[1].err


def test_the_run_is_the_same_with_and_without_callbacks(told, trained):
    run, plain = open_run(told[0] / "run.h5"), trained("stop.max_rounds=2")
    assert run.meta["params_digest"] == plain.meta["params_digest"]
    assert run.cohorts["site"].tolist() == plain.cohorts["site"].tolist() and verify(run) == []


def test_the_example_of_the_contract_works_as_it_stands(told, rows):
    assert sum(map(bool, EXAMPLE.splitlines())) <= 12
    best, expected = 0.0, []
    for row in rows:
        if row.accuracy >= best + 0.001:
            best = row.accuracy
            expected.append(f"accuracy {row.accuracy:.2f} after round {row.round}")
    assert [line for line in told[1].out.splitlines() if line.startswith("accuracy ")] == expected != []


def test_a_line_of_json_holds_the_numbers_of_a_round(told, rows):
    lines = lines_of(told[0])
    assert [line["round"] for line in lines] == [1, 2]
    assert lines[1]["accuracy"] == rows[1].accuracy and lines[1]["clock_s"] == rows[1].clock_s
    assert "cohort" not in lines[1] and "candidates" not in lines[1]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("inp.toml", "inp.toml: exists and is no file of a run's rounds as JSON"),
        ("run.h5", "run.h5: is the results file of the run"),
        ("pipe", "pipe: is no regular file"),
    ],
)
def test_lines_replace_no_file_of_anything_else(path, said, hpctrip, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inp.toml").write_text(tiny.read_text())
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDWR)  # or a wrong writer would wait
    hpctrip("run", "inp.toml", "--out", "run.h5", "-o", f"callbacks.jsonl={{path={path!r}}}").check_refused(
        [said]
    )
    os.close(reader)
    assert {file.name for file in tmp_path.iterdir()} == {"inp.toml", "pipe"}
    assert (tmp_path / "inp.toml").read_text() == tiny.read_text()


@pytest.mark.parametrize("content", ["", '{"round": 1}\n{"rou', "text", "[1]", "[" * 100_000, "3"])
def test_an_earlier_file_of_lines_is_known_by_its_first_line(content, tmp_path):
    (tmp_path / "run.h5.jsonl").write_text(content)
    refused = contextlib.nullcontext()
    if content and "round" not in content:
        refused = pytest.raises(InputError, match=r"remove it, or name another by callbacks\.jsonl\.path")
    with refused:
        CALLBACKS["jsonl"]().check_outputs(tmp_path / "run.h5")


def test_a_run_that_goes_on_tells_of_the_new_rounds_only_and_repeats_no_line(told, hpctrip):
    """An earlier start was killed after it had told of round 3 and before it saved it."""
    folder, _ = told
    with open(folder / "run.h5.jsonl", "a") as file:
        file.write('{"round": 3, "accuracy": 0.5}\n{"rou')
    (folder / "diary").unlink()
    ended = hpctrip("resume", folder / "run.h5", folder / "mine.toml", "-o", "stop.max_rounds=4")
    assert ended.code == 0, ended.err
    assert [line["round"] for line in lines_of(folder)] == [1, 2, 3, 4]
    first, *others = notes_of(folder)
    assert first == "start tiny run.h5 4 2"
    assert [" ".join(note.split()[:2]) for note in others] == ["round 3", "round 4", "end finished"]


@pytest.mark.mpi
def test_under_ranks_rank_0_alone_is_told_and_once_of_every_round(launch, tiny, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    lines = ("-o", "stop.max_rounds=2", "-o", f"callbacks.diary.path={tmp_path / 'diary'}")
    path = tmp_path / "run.h5"
    ended = launch(3, tiny, "--plugin", tmp_path / "mine.py", *lines, "--out", path)
    assert ended.code == 0, ended.err
    assert [note.split()[0] for note in notes_of(tmp_path)] == ["start", "round", "round", "end"]
    assert len({line.split()[-1] for line in (tmp_path / "diary").read_text().splitlines()}) == 1


class Everywhere(Callback):
    """Wants to know of every machine."""

    on_every_machine = True
    _told: list

    def start(self, run):
        self._told = [(run.rank, len(run.rounds))]

    def ranks(self, totals):
        self._told.append(totals.wall_s.shape)

    def end(self, status):
        self._told.append(status)


class OneOf:
    """A rank of a job, as far as it is told what rank 0 decides."""

    def __init__(self, rank, run):
        self.rank, self.lead = rank, lambda decide: run


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "finished"),
        (EndedByAggregator(InterruptedRun.exit_code), "interrupted"),
        (KeyError(), "failed"),
    ],
)
def test_the_first_rank_of_another_machine_is_told_of_the_ranks_and_how_the_run_ended(
    error, status, tmp_path
):
    run = RunFacts("tiny", tmp_path, "", {}, (), hosts=("a", "a", "b", "b"))
    for rank in (1, 3):
        with elsewhere({"all": Everywhere()}, OneOf(rank, run)) as callbacks:
            assert callbacks is None
    given = {"all": Everywhere(), "off": Everywhere(enabled=False), "rank 0": Stuck()}
    with contextlib.suppress(EndedByAggregator, KeyError), elsewhere(given, OneOf(2, run)) as callbacks:
        assert callbacks.asks_for_ranks
        callbacks.ranks(RankTotals.none(4))
        if error:
            raise error
    assert given["all"]._told == [(2, 0), (4, 4), status]


def test_where_no_callback_asks_for_other_machines_they_are_not_even_told_of_the_run():
    with elsewhere({"rank 0": Stuck()}, OneOf(1, None)) as callbacks:
        assert callbacks is None


FREE = threading.Event()


class Stuck(Callback):
    """Does not come back from its first round."""

    _told: list

    def start(self, run):
        self._told = []

    def round(self, row):
        self._told.append(row.round)
        FREE.wait()


def test_the_run_does_not_wait_for_a_callback_that_is_stuck_but_at_the_end_a_little(rows, tmp_path):
    said, stuck = [], Stuck()
    callbacks = Callbacks({"slow": stuck}, RunFacts("tiny", tmp_path, "", {}), said.append)
    for row in rows:
        callbacks.round(row)  # returns
    assert said == []
    callbacks.end("finished", patience_s=0.2)
    assert said == ["warning: callbacks.slow is still busy with round 1: the rest is lost to it"]
    assert stuck._told == [1]
    FREE.set()


def test_rows_are_copies_so_that_even_by_force_nothing_of_the_run_changes(rows, tmp_path):
    class Force(Callback):
        def round(self, row):
            row.cohort.site.setflags(write=True)
            row.cohort.site[:] = -1
            object.__setattr__(row, "accuracy", 2.0)

    callbacks = Callbacks({"force": Force()}, RunFacts("tiny", tmp_path, "", {}, rows), print)
    callbacks.round(rows[0])
    callbacks.end("finished")
    assert min(rows[0].cohort.site) >= 0 and rows[0].accuracy < 1


def test_a_callback_that_fails_while_it_is_described_is_switched_off_too(rows, tmp_path):
    class Nameless(Exception):
        def __str__(self):
            raise RuntimeError

    class Odd(Callback):
        def round(self, row):
            raise Nameless

    said = []
    callbacks = Callbacks({"odd": Odd()}, RunFacts("tiny", tmp_path, "", {}), said.append)
    callbacks.round(rows[0])
    callbacks.end("failed")
    assert said == ["warning: callbacks.odd, round 1: Nameless: no text; it is not called again"]


def test_a_table_is_named_by_the_user_and_is_of_the_kind_of_its_name_unless_it_says_otherwise():
    found = read_input([], ["callbacks.jsonl.path='a'", "callbacks.second={kind='jsonl', path='b'}"])
    assert {name: (c.kind, c.path) for name, c in found.experiment.callbacks.items()} == {
        "jsonl": ("jsonl", "a"),
        "second": ("jsonl", "b"),
    }
    assert 'callbacks.second]\nkind = "jsonl"' in found.resolved_toml


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


@pytest.mark.parametrize("kind", ["mlflow", "tensorboard"])
def test_an_extra_that_is_not_installed_is_one_line_at_check_and_at_the_start(
    kind, hpctrip, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line, path = f"callbacks.{kind}={{}}", tmp_path / "run.h5"
    for ended in (hpctrip("check", tiny, "-o", line), hpctrip("run", tiny, "-o", line, "--out", path)):
        ended.check_refused([f'callbacks: kind = "{kind}": {kind}', "not installed", f".[{kind}]'"])
    assert not path.exists()
    off = ("-o", f"callbacks.{kind}.enabled=false")
    assert hpctrip("check", tiny, "-o", line, *off).code == 0


def test_one_that_cannot_say_what_it_needs_is_one_line_before_the_run(hpctrip, tiny, tmp_path, monkeypatch):
    def check(self):
        raise ZeroDivisionError("nothing to divide by")

    monkeypatch.setattr(CALLBACKS["jsonl"], "check", check)
    line, path = "callbacks.jsonl={}", tmp_path / "run.h5"
    for ended in (hpctrip("check", tiny, "-o", line), hpctrip("run", tiny, "-o", line, "--out", path)):
        ended.check_refused(
            ["callbacks.jsonl: fails before the run: ZeroDivisionError: nothing to divide by"]
        )
    assert not path.exists()


def test_keys_describes_the_callbacks(hpctrip):
    ended = hpctrip("keys", "callbacks")
    assert "[callbacks]  kind: " in ended.out and "`[callbacks.tensorboard]`" in ended.out
    assert "tracking_uri" in ended.out
