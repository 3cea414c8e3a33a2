"""Progress of a run on a terminal, in a log, and where the output is closed."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r")


class Terminal(io.StringIO):
    """Claims to be a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


class AsciiTerminal(Terminal):
    encoding = "ascii"


def screen(text):
    """The lines on a terminal after this text; only the control codes that rich uses here are obeyed."""
    lines, y, x = [""], 0, 0
    for number, command, char in re.findall(r"\x1b\[([?\d;]*)([A-Za-z])|([^\x1b])", text):
        if char == "\n":
            y, x = y + 1, 0
            lines += [""] * (y == len(lines))
        elif char == "\r":
            x = 0
        elif char:
            lines[y] = lines[y][:x].ljust(x) + char + lines[y][x + 1 :]
            x += 1
        elif command == "A":
            y -= int(number or 1)
        elif command == "K":
            lines[y] = ""
    return [line.rstrip() for line in lines]


@pytest.fixture
def hpctrip_to(monkeypatch):
    """`hpctrip_to(stream, *args)`: the exit code of a command whose stdout is this stream."""
    from hpctrip.cli.main import run_command

    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)

    def run(stream, *args):
        monkeypatch.setattr(sys, "argv", ["hpctrip", *map(str, args)])
        with contextlib.redirect_stdout(stream):
            return run_command()

    return run


def test_on_a_terminal_a_bar_stays_in_view_between_the_rounds_and_the_closing_lines(
    hpctrip_to, tiny, tmp_path
):
    terminal = Terminal()
    assert hpctrip_to(terminal, "run", tiny, "--out", tmp_path / "run.h5") == 0
    lines = screen(terminal.getvalue())
    rounds = [number for number, line in enumerate(lines) if line.startswith("round ") and "wall" in line]
    assert len(rounds) == 3
    bar = lines[rounds[-1] + 1]
    assert re.match(r"━+ round 3/3 0:00:\d\d at most 0:00:00 left$", bar), bar
    assert lines[rounds[-1] + 2].startswith("stopped: max_rounds = 3")
    assert lines[-2] == f"results: {tmp_path / 'run.h5'}"
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1  # the cursor


def test_the_bar_is_plain_ascii_where_the_encoding_is_not_utf_8(hpctrip_to, tiny, tmp_path):
    terminal = AsciiTerminal()
    assert hpctrip_to(terminal, "run", tiny, "--out", tmp_path / "run.h5") == 0
    assert terminal.getvalue().isascii()
    assert any(re.match("-+ round 3/3", line) for line in screen(terminal.getvalue()))


def test_the_bar_of_a_resumed_run_begins_where_the_run_was(hpctrip_to, tiny, tmp_path):
    path, more = tmp_path / "run.h5", ("-o", "stop.max_rounds=3")
    assert hpctrip_to(io.StringIO(), "run", tiny, "-o", "stop.max_rounds=2", "--out", path) == 0
    terminal = Terminal()
    assert hpctrip_to(terminal, "resume", path, *more) == 0
    assert "round 2/3" in terminal.getvalue().partition("round    3")[0]


def test_a_log_gets_one_line_a_round_and_no_control_characters(hpctrip_to, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = io.StringIO()
    assert hpctrip_to(log, "run", tiny, "--out", tmp_path / "run.h5") == 0
    assert not CONTROL.search(log.getvalue()) and log.getvalue().replace("\n", "").isprintable()
    assert sum(line.startswith("round ") for line in log.getvalue().splitlines()) == 3


class Broken(Terminal):
    """A terminal whose window was closed after some output."""

    def write(self, text):
        if self.tell() > 1000:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_a_terminal_that_is_closed_does_not_end_the_run(hpctrip_to, tiny, tmp_path):
    from hpctrip.record.reader import open_run

    assert hpctrip_to(Broken(), "run", tiny, "--out", tmp_path / "run.h5") == 0
    assert open_run(tmp_path / "run.h5").status == "finished"


def test_a_reader_that_leaves_does_not_end_the_run_nor_change_its_exit_code(tiny, tmp_path):
    """As `hpctrip ... | head -1` does."""
    command = ["run", tiny, "-o", "stop.max_rounds=1", "--out", tmp_path / "run.h5"]
    process = subprocess.Popen(
        [sys.executable, "-m", "hpctrip", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline().startswith(b"hpctrip ")
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
    process.stderr.close()
