"""What rank 0 shows on a terminal, in a log, and where nobody can see it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from hpctrip.app.chart import ASCII, BRAILLE, curve
from hpctrip.app.live_view import PACE, LiveView
from hpctrip.app.time_left import guessed_target_s, most_left_s
from hpctrip.sim.rounds import History
from hpctrip.sim.stop import Stop

ROOT = Path(__file__).parents[2]
CONTROL = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r")


@pytest.fixture(scope="module")
def real(trained):
    """A row that happened; the fixture below changes what these tests are about."""
    return trained("stop.max_rounds=1").history().rows[0]


@pytest.fixture
def history(real):
    """`history(accuracies)`: rounds of 100 simulated and 2 wall seconds; None: not evaluated."""

    def build(accuracies):
        return History(
            tuple(
                replace(
                    real,
                    round=number,
                    clock_s=100.0 * number,
                    makespan_s=100.0,
                    wall_s=2.0,
                    accuracy=np.nan if accuracy is None else accuracy,
                    eval_seen=0 if accuracy is None else 100,
                )
                for number, accuracy in enumerate(accuracies, 1)
            )
        )

    return build


class Terminal(io.StringIO):
    """Is one, as far as a program can tell."""

    def __init__(self, encoding="utf-8"):
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self):
        return self._encoding

    def isatty(self):
        return True


def drawn(history, width=80, height=24, encoding="utf-8", **stop):
    """The lines of the view, half a second after the last round."""
    file, seconds = Terminal(encoding), iter([10.0, 10.5])
    console = Console(file=file, force_terminal=True, width=width, height=height, color_system=None)
    console.print(LiveView(console, Stop(**stop), history, clock=lambda: next(seconds)))
    lines = file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines), lines
    return lines


RISING = [0.1, 0.2, 0.3, 0.35, 0.4, 0.42]


def test_a_terminal_shows_the_curve_its_axes_and_how_far_the_run_is(history):
    *chart, axis, status = drawn(history(RISING), target_accuracy=0.5, max_rounds=100)
    assert len(chart) == 6
    assert chart[0].startswith("0.5000 ┤") and chart[-1].startswith("0.1000 ┤")
    assert axis.startswith("        0 ") and axis.endswith(" 0.167 h") and "simulated time" in axis
    assert "round 6/100  0:00:00  at most 0:03:08 left  target in 0:00:0" in status
    assert status.endswith("(guess)")


@pytest.mark.parametrize("width", [1, 7, 20, 31, 32, 40, 60, 79, 80, 81, 120, 300])
@pytest.mark.parametrize("height", [1, 9, 12, 50])
def test_it_fits_every_size_and_leaves_out_what_has_no_room(history, width, height):
    lines = drawn(history(RISING), width, height, target_accuracy=0.5)
    assert len(lines) == (1 if width < 32 or height < 10 else 5 if height < 20 else 8)
    assert lines[-1].strip("━─ ")[:width].startswith("round 6/500"[:width])
    assert ("left" in lines[-1]) == (width >= 60)
    assert ("guess" in lines[-1]) == (width >= 79)


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_it_is_plain_ascii_where_the_encoding_is_not_utf_8(history, encoding):
    lines = drawn(history(RISING), encoding=encoding, target_accuracy=0.5, max_rounds=12)
    assert "".join(lines).isascii()
    assert lines[0].startswith("0.5000 |'  '") and re.match(r"0.1000 \| +\.\.:'", lines[5])
    assert drawn(history(RISING), 120, encoding=encoding, max_rounds=12)[-1].startswith("####")


@pytest.mark.parametrize("accuracies", [[], [None], [0.3], [0.3, 0.3], [None, 0.0], [0.5] * 2000])
def test_it_can_be_drawn_from_the_first_moment_on(history, accuracies):
    evaluated = [accuracy for accuracy in accuracies if accuracy is not None]
    assert len(drawn(history(accuracies), target_accuracy=None)) == (8 if evaluated else 1)


def test_a_far_target_does_not_press_the_curve_flat(history):
    assert drawn(history([0.01, 0.02]), target_accuracy=0.9)[0].startswith("0.0200")
    assert drawn(history([0.01, 0.4]), target_accuracy=0.9)[0].startswith("0.9000")


def test_the_curve_is_where_the_numbers_are():
    assert curve([(0.0, 0.0), (9.0, 1.0)], 10, 5, (0.0, 1.0), None, ASCII) == [
        "        .:",
        "      .:' ",
        "    .:'   ",
        "  .:'     ",
        ".:'       ",
    ]
    assert curve([(1, 0), (2, 1), (3, 0), (4, 1)], 8, 2, (0.0, 1.0), None, BRAILLE) == [
        "   ⣰⢲⡀ ⡼",
        "  ⣰⠃ ⢳⡼⠁",
    ]


def test_it_begins_with_the_first_evaluation_and_the_target_is_a_dotted_line():
    flat = curve([(5.0, 0.5), (10.0, 0.5)], 6, 3, (0.0, 1.0), 1.0, ASCII)
    assert flat == ["'  '  ", "   '''", "      "]


def test_the_time_left_is_that_to_the_first_limit_at_the_pace_of_the_last_rounds(history):
    rows = history([0.1] * 10).rows  # 2 s of wall time for 100 simulated ones
    assert most_left_s(rows, Stop(max_rounds=60)) == 100
    assert most_left_s(rows, Stop(max_clock_s=1500.0)) == 10
    assert most_left_s(rows, Stop(max_wall_s=24.0)) == 4
    assert most_left_s(rows, Stop(max_rounds=60, max_clock_s=1500.0, max_wall_s=24.0)) == 4
    assert most_left_s(rows, Stop(max_wall_s=1.0)) == 0
    slower = [*rows, *(replace(row, round=row.round + 10, wall_s=8.0) for row in (*rows, *rows))]
    assert most_left_s(slower, Stop(max_rounds=21)) == 8


def test_the_time_to_the_target_is_guessed_from_the_trend(history):
    steady = history([0.01 * number for number in range(1, 31)]).rows
    assert guessed_target_s(steady, Stop(target_accuracy=0.4)) == pytest.approx(2.0 * 10)
    every_third = history([0.01 * n if n % 3 == 0 else None for n in range(1, 32)]).rows
    assert guessed_target_s(every_third, Stop(target_accuracy=0.4)) == pytest.approx(2.0 * 9)


@pytest.mark.parametrize("accuracies", [[0.1, 0.2], [0.4, 0.3, 0.3, 0.2, 0.1], [0.2] * 9, [None] * 9])
def test_without_a_trend_nothing_is_guessed(history, accuracies):
    assert guessed_target_s(history(accuracies).rows, Stop(target_accuracy=0.5)) is None
    assert guessed_target_s(history(RISING).rows, Stop(target_accuracy=None)) is None


def test_lines_wait_for_each_other_so_that_drawing_costs_little_and_none_is_lost(history):
    """A drawing takes 1 s of this clock: the lines of the next PACE seconds come together."""
    seconds, file = [0.0], Terminal()
    console = Console(file=file, force_terminal=True, width=80, height=24)
    prints = []

    def printed(text):
        prints.append(text)
        seconds[0] += 1.0

    console.print = printed
    view = LiveView(console, Stop(), history([]), clock=lambda: seconds[0])
    rounds = history(RISING[:1] * 3)
    for number in range(2 * PACE):
        view.round(rounds, f"round {number}")
        seconds[0] += 1.0
    view.flush()
    assert "\n".join(prints).splitlines() == [f"round {number}" for number in range(2 * PACE)]
    assert [text.count("\n") + 1 for text in prints] == [1, PACE, PACE - 1]


def screen(text):
    """What stands on a terminal after this text, of which it obeys what the view uses."""
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
    from hpctrip.app.cli import main

    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)

    def run(stream, *args):
        monkeypatch.setattr(sys, "argv", ["hpctrip", *map(str, args)])
        with contextlib.redirect_stdout(stream):
            try:
                main()
            except SystemExit as end:
                return end.code
        return 0

    return run


def test_on_a_terminal_rounds_and_the_curve_stay_in_view_above_the_closing_lines(hpctrip_to, tiny, tmp_path):
    terminal = Terminal()
    assert hpctrip_to(terminal, "run", tiny, "--out", tmp_path / "run.h5") == 0
    lines = screen(terminal.getvalue())
    assert sum(line.startswith("round ") and "wall" in line for line in lines) == 3
    (axis,) = [number for number, line in enumerate(lines) if "accuracy over simulated time" in line]
    assert "┤" in lines[axis - 6] and re.match("━+  round 3/3  0:00:..$", lines[axis + 1])
    assert lines[axis + 2].startswith("stopped: max_rounds = 3")
    assert lines[-2] == f"results: {tmp_path / 'run.h5'}"
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1  # the cursor


def test_a_run_that_goes_on_shows_the_curve_from_its_beginning(hpctrip_to, tiny, tmp_path):
    path, more = tmp_path / "run.h5", ("-o", "stop.max_rounds=3")
    assert hpctrip_to(io.StringIO(), "run", tiny, "-o", "stop.max_rounds=2", "--out", path) == 0
    terminal = Terminal()
    assert hpctrip_to(terminal, "resume", path, *more) == 0
    first_view = terminal.getvalue().partition("round    3")[0]
    assert "round 2/3" in first_view and "accuracy over simulated time" in first_view


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
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "hpctrip",
            "run",
            tiny,
            "-o",
            "stop.max_rounds=1",
            "--out",
            tmp_path / "run.h5",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline().startswith(b"hpctrip ")
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
    process.stderr.close()
