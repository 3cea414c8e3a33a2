"""What a person sees of a study: one bar for all runs and a line a worker on a terminal, a line a run elsewhere."""

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

EVERY_S = 0.5
"""The picture on a terminal is drawn anew so often."""


class Display:
    """Follows the runs of studies, of which `done` of `total` were finished before."""

    def __init__(self, total: int, done: int, num_workers: int):
        self.console = Console(highlight=False, soft_wrap=True)
        self._total, self._before, self._num_workers = total, done, num_workers
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

    def say(self, line: str) -> None:
        """One more line."""
        self.console.print(printable(line, 1000), markup=False)

    def ended(self, entry: Entry, end: End) -> None:
        """A run is over."""
        self._ended[end.how] += 1
        if end.how == RunStatus.FAILED:
            self.say(f"failed: {entry.name}: {end.reason.splitlines()[0]}")
        elif end.how == RunStatus.INTERRUPTED:
            self.say(f"interrupted: {entry.name}")
        elif not self.console.is_terminal:
            self.say(f"{end.how}: {entry.name} ({self._counts()}{self._left()})")

    def follow(self, workers: Sequence[Worker]) -> None:
        """What the workers do now."""
        self._workers = workers
        if self.console.is_terminal and time.monotonic() - self._drawn_s > EVERY_S:
            self._drawn_s = time.monotonic()
            self._live.update(self._picture(), refresh=True)

    def _counts(self) -> str:
        done = self._before + self._ended[RunStatus.FINISHED]
        failed = f", {self._ended[RunStatus.FAILED]} failed" if self._ended[RunStatus.FAILED] else ""
        return f"{done} of {self._total} finished{failed}"

    def _left(self) -> str:
        """The time left, if all runs take as long as those that have finished meanwhile."""
        over = sum(self._ended.values())
        left = self._total - self._before - over
        if not over or not left:
            return ""
        seconds = (time.monotonic() - self._began_s) / over * left
        return f", about {duration(seconds)} left"

    def _picture(self) -> Group:
        busy = [one for one in self._workers if one.entry is not None]
        left = self._total - self._before - sum(self._ended.values()) - len(busy)
        table = Table(box=None, pad_edge=False, show_header=False)
        for one in busy:
            assert one.entry is not None
            name, rounds = Text(printable(one.entry.name, 60)), one.entry.run_input.experiment.stop.max_rounds
            if one.last is None:
                table.add_row(name, "starts", "", "")
            else:
                accuracy = (
                    f"accuracy {one.last.accuracy:.4f}" if one.last.accuracy == one.last.accuracy else ""
                )
                clock = f"clock {one.last.clock_s / HOUR_S:.3f} h"
                table.add_row(name, f"round {one.last.number} of {rounds}", accuracy, clock)
        bar = ProgressBar(self._total, self._total - left - len(busy), width=40)
        said = f"{self._counts()}, {len(busy)} running, {max(0, left)} waiting{self._left()}"
        return Group(bar, Text(said), table)


def duration(seconds: float) -> str:
    """A wall time in a few characters."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / HOUR_S:.1f} h"
