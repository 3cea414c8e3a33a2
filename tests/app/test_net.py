"""The last net: a mistake of hpctrip's own while it reads input is one line and a log; in a round it is a traceback."""

from __future__ import annotations

import click
import pytest

from hpctrip.__main__ import cli
from hpctrip.app.net import OWN_FAULT, Reader, reading
from hpctrip.base.errors import InputError
from hpctrip.sim.step import Simulation
from hpctrip.sim.world import World


def mistake(*args, **kwargs):
    """What nobody foresaw."""
    raise KeyError("\x1b[2J" + "x" * 10_000)


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """The folder where tracebacks go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", ["check", "plan", "run"])
def test_a_mistake_while_input_is_read_is_one_line_and_a_log(command, logs, hpctrip, tiny, monkeypatch):
    monkeypatch.setattr("hpctrip.app.experiment.merge", mistake)
    ended = hpctrip(command, tiny)
    ended.check_refused([f"hpctrip: {tiny}: cannot be read: KeyError: ", OWN_FAULT])
    assert len(ended.err) < 1000 and "\x1b" not in ended.err
    (log,) = logs.glob("hpctrip-error-*")
    assert str(log) in ended.err
    assert "Traceback" in log.read_text() and "in mistake" in log.read_text()


@pytest.mark.parametrize("command", ["plan", "run"])
def test_building_the_parts_is_reading_input(command, logs, hpctrip, tiny, monkeypatch):
    monkeypatch.setattr(World, "build", mistake)
    hpctrip(command, tiny).check_refused([OWN_FAULT])


@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_mistake_in_a_round_shows_its_traceback(command, logs, hpctrip, tiny, monkeypatch):
    monkeypatch.setattr(Simulation, "begin", mistake)
    with pytest.raises(KeyError):
        hpctrip(command, tiny)
    assert not list(logs.glob("hpctrip-error-*"))


COMPONENTS = {
    "study": ("hpctrip.study.ledger.Ledger.lines", ["study", "fig09", "--small", "--list"]),
    "claims": ("hpctrip.study.claims.gather.read_studies", ["claims", "."]),
    "run, several values": ("hpctrip.study.studies.entries", ["run", "-o", "seed=1,2"]),
    "plot": ("hpctrip.figures.common.reading.read_runs", ["plot", "league", "x.h5"]),
}


@pytest.mark.parametrize("command", COMPONENTS)
def test_commands_that_read_what_others_made_have_the_net(command, logs, hpctrip, monkeypatch):
    place, words = COMPONENTS[command]
    monkeypatch.setattr(place, mistake)
    monkeypatch.chdir(logs)
    hpctrip(*words).check_refused(["cannot be read: KeyError: ", OWN_FAULT])


THAT_TRAIN = {"run", "resume", "retime", "plan", "tune", "study", "cluster run"}
"""They call `reading` themselves, around what is no round."""


def test_every_other_command_has_the_net():
    """A new one is covered or named above."""

    def commands(group, before=""):
        for name, command in group.commands.items():
            if isinstance(command, click.Group) and not isinstance(command, Reader):
                yield from commands(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command

    assert {name for name, command in commands(cli) if not isinstance(command, Reader)} == THAT_TRAIN


def test_what_is_expected_falls_through(logs):
    for error in (InputError("a", "b"), click.UsageError("c"), click.exceptions.Exit(1), BrokenPipeError()):
        with pytest.raises(type(error)), reading():
            raise error
    with pytest.raises(KeyboardInterrupt), reading():
        raise KeyboardInterrupt
    assert not list(logs.glob("hpctrip-error-*"))


def test_an_end_of_file_is_not_taken_for_an_abort(logs):
    """click takes an EOFError, which a truncated file raises, for Ctrl-D."""
    with pytest.raises(InputError, match="EOFError"), reading():
        raise EOFError


def test_where_no_log_can_be_written_the_line_says_so(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(InputError, match="no log could be written"), reading():
        mistake()
