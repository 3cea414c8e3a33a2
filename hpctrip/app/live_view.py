"""What a terminal shows below the lines of the rounds: accuracy over the simulated clock, and how far the run is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.text import Text

from hpctrip.app.chart import ASCII, BRAILLE, curve
from hpctrip.app.time_left import guessed_target_s, most_left_s
from hpctrip.base.units import HOUR_S
from hpctrip.sim.rounds import History
from hpctrip.sim.stop import Stop

DRAWS_PER_S = 1
"""So that the seconds run on while a round takes minutes."""
PACE = 200
"""After a drawing the next lines wait 200 times as long as it took: they cost at most 0.5 % of the wall time."""
_WIDEST, _NARROWEST = 100, 32
"""Columns of the chart; on a terminal that is narrower than this there is none."""
_ROWS, _FEW_ROWS = 6, 3
_HIGH, _LOW = 20, 10
"""A terminal of so many lines gets a chart of so many rows; a lower one gets none."""
_LABEL = 8
_SHORTEST_BAR = 8


class LiveView:
    """Between `start` and `stop` it is drawn below whatever is printed. Afterwards it stays as it is, and what is
    printed goes on below it."""

    def __init__(
        self, console: Console, stop: Stop, history: History, clock: Callable[[], float] = time.monotonic
    ):
        """`history` are the rounds before this start. `clock` is the wall clock in seconds."""
        self._console, self._stop, self._clock = console, stop, clock
        self._history = history
        self._points = [(row.clock_s, row.accuracy) for row in history.evaluated()]
        self._pending: list[str] = []
        self._began = self._rounded = clock()
        self._due = -float("inf")
        self._over = False
        self._live = Live(self, console=console, refresh_per_second=DRAWS_PER_S)

    def start(self) -> None:
        """Draw it from now on."""
        self._live.start()

    def stop(self) -> None:
        """Draw it for the last time, unless that has happened already."""
        self._over = True
        self.flush()
        self._live.stop()

    def round(self, history: History, line: str) -> None:
        """One more round is done, of which `line` tells."""
        self._history, self._rounded = history, self._clock()
        row = history.rows[-1]
        if row.eval_seen:
            self._points.append((row.clock_s, row.accuracy))
        self._pending.append(line)
        if self._rounded >= self._due:
            self.flush()

    def flush(self) -> None:
        """Print the lines that wait."""
        if not self._pending:
            return
        began = self._clock()
        self._console.print("\n".join(self._pending))  # which draws the view below them anew
        self._pending = []
        ended = self._clock()
        self._due = ended + PACE * (ended - began)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        plain, points = options.ascii_only, self._points.copy()  # which another thread may lengthen
        rows = _ROWS if console.height >= _HIGH else _FEW_ROWS
        if points and options.max_width >= _NARROWEST and console.height >= _LOW:
            yield from self._chart(points, min(options.max_width, _WIDEST), rows, plain)
        yield self._status(options.max_width, plain)

    def _chart(self, points: list[tuple[float, float]], width: int, rows: int, plain: bool) -> Iterator[Text]:
        """The curve with its axes: at the left the lowest and the highest accuracy, below the clock. The target is in
        the picture as soon as that leaves the curve a third of it."""
        target, columns = self._stop.target_accuracy, width - _LABEL
        accuracies = [accuracy for _, accuracy in points]
        low, high = min(accuracies), max(accuracies)
        high = max(high, target) if target is not None and target < 3 * high else high
        drawn = curve(points, columns, rows, (low, high), target, ASCII if plain else BRAILLE)
        labels = [f"{high:.4f}", *[""] * (rows - 2), f"{low:.4f}"]
        for label, cells in zip(labels, drawn, strict=True):
            axis = "|" if plain else "┤" if label else "│"
            yield _line((f"{label:>6} {axis}", "dim"), (cells, "cyan"))
        end = f"{points[-1][0] / HOUR_S:.3f} h"
        words = "accuracy over simulated time"
        words = words.center(columns - len(end) - 1) if columns > len(end) + len(words) + 4 else ""
        axis = f"{' ' * _LABEL}0{words:{columns - len(end) - 1}}{end}"
        yield _line((axis, "dim"))

    def _status(self, width: int, plain: bool) -> Text:
        """How far the run is, as much of it as fits into one line; a bar where there is room."""
        done, total = len(self._history), self._stop.max_rounds
        text = ""
        for more in self._words():
            if not text or len(text) + 2 + len(more) <= width:
                text += f"  {more}" if text else more
        bar = min(width - len(text) - 2, 40)
        if bar < _SHORTEST_BAR:
            return _line((text, ""))
        filled = round(bar * min(done / total, 1))
        full, empty = ("#", "-") if plain else ("━", "─")
        return _line((full * filled, "cyan"), (empty * (bar - filled), "dim"), (f"  {text}", ""))

    def _words(self) -> Iterator[str]:
        """The most important first."""
        rows, now = self._history.rows, self._clock()
        yield f"round {len(rows)}/{self._stop.max_rounds}"
        yield _duration(now - self._began)
        if not rows or self._over:
            return
        since_s = now - self._rounded
        most_s = most_left_s(rows, self._stop)
        yield f"at most {_duration(most_s - since_s)} left"
        guess_s = guessed_target_s(rows, self._stop)
        if guess_s is not None and guess_s < most_s:
            yield f"target in {_duration(guess_s - since_s)} (guess)"


def _line(*parts: tuple[str, str]) -> Text:
    return Text.assemble(*parts, no_wrap=True, overflow="crop", end="\n")


def _duration(s: float) -> str:
    return str(timedelta(seconds=round(max(0.0, s))))
