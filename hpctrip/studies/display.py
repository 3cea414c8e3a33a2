"""Progress display of a study: a bar and one line per worker on a terminal, else one line per finished run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.studies.execute import Worker
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunStatus
from hpctrip.studies.worker import End

REFRESH_S = 0.5
"""Interval between two updates of the terminal, in wall seconds."""


class Display:
    """Displays the progress of `total` runs, of which `done` were finished before."""

    def __init__(self, total: int, done: int):
        self.console = Console(highlight=False, soft_wrap=True)
        self._total, self._before = total, done
        self._ended: Counter[str] = Counter()
        self._began_s = self._drawn_s = time.monotonic()
        self._workers: Sequence[Worker] = ()
        self._live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def print(self, line: str) -> None:
        """Print one line above the bar."""
        self.console.print(printable(line, 1000), markup=False)

    def ended(self, entry: Entry, end: End) -> None:
        """Count a run that has ended, and print its line."""
        self._ended[end.status] += 1
        if end.status == RunStatus.FAILED:
            self.print(f"failed: {entry.name}: {end.reason.splitlines()[0]}")
        elif end.status == RunStatus.INTERRUPTED:
            self.print(f"interrupted: {entry.name}")
        elif not self.console.is_terminal:
            self.print(f"{end.status}: {entry.name} ({self._counts()}{self._left()})")

    def follow(self, workers: Sequence[Worker]) -> None:
        """Show what the workers are doing; redraws at most every `REFRESH_S`."""
        self._workers = workers
        if self.console.is_terminal and time.monotonic() - self._drawn_s > REFRESH_S:
            self._drawn_s = time.monotonic()
            self._live.update(self._render(), refresh=True)

    def _counts(self) -> str:
        done = self._before + self._ended[RunStatus.FINISHED]
        failed = f", {self._ended[RunStatus.FAILED]} failed" if self._ended[RunStatus.FAILED] else ""
        return f"{done} of {self._total} finished{failed}"

    def _left(self) -> str:
        """Estimate of the remaining wall time, from the mean time per run since the start."""
        ended = sum(self._ended.values())
        left = self._total - self._before - ended
        if not ended or not left:
            return ""
        seconds = (time.monotonic() - self._began_s) / ended * left
        return f", about {duration(seconds)} left"

    def _render(self) -> Group:
        busy = [worker for worker in self._workers if worker.entry is not None]
        left = self._total - self._before - sum(self._ended.values()) - len(busy)
        table = Table(box=None, pad_edge=False, show_header=False)
        for worker in busy:
            assert worker.entry is not None
            name = Text(printable(worker.entry.name, 60))
            rounds = worker.entry.run_input.experiment.stop.max_rounds
            if worker.last is None:
                table.add_row(name, "starts", "", "")
            else:
                accuracy = (
                    f"accuracy {worker.last.accuracy:.4f}"
                    if worker.last.accuracy == worker.last.accuracy
                    else ""
                )
                clock = f"clock {worker.last.clock_s / HOUR_S:.3f} h"
                table.add_row(name, f"round {worker.last.number} of {rounds}", accuracy, clock)
        bar = ProgressBar(self._total, self._total - left - len(busy), width=40)
        text = f"{self._counts()}, {len(busy)} running, {max(0, left)} waiting{self._left()}"
        return Group(bar, Text(text), table)


def duration(seconds: float) -> str:
    """Wall time as short text, e.g. 90 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / HOUR_S:.1f} h"
