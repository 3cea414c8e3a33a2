"""`watch`: a run that another process writes, seen from its results file alone.

The file is read and never locked, and nothing is written, so nothing that happens here reaches the run. Its writer
replaces it as a whole: what is read is always one snapshot. Where it cannot be read for a while (a file system that
does not answer, a connection that is down), the last one stays in view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.text import Text

from hpctrip.app.live_view import LiveView
from hpctrip.app.progress import round_line
from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.record.reader import Run, open_run
from hpctrip.record.show import PHASES
from hpctrip.sim.rounds import History
from hpctrip.sim.stop import Stop

LOOK_S = 1.0
"""Between two looks at whether the file has changed."""
PACE = 20
"""After a reading the next one waits 20 times as long as it took."""
_RECENT = 20
"""Rounds that the rates are of."""
RUNNING = "running"


class Watched(LiveView):
    """The live view of a run elsewhere, with what its last rounds were spent on."""

    def __init__(self, console: Console, run: Run, clock: Callable[[], float] = time.monotonic):
        super().__init__(console, stop_of(run), History(), clock)
        self._began = clock() - _age_s(run.meta["created_utc"])
        self.trouble = ""
        """Why the file cannot be read just now."""

    def follow(self, history: History) -> None:
        """Tell of the rounds that are new."""
        for number in range(len(self._history) + 1, len(history) + 1):
            known = History(history.rows[:number])
            self.round(known, round_line(known.rows[-1]))
        self.flush()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        yield from super().__rich_console__(console, options)
        for line in filter(None, (spent(self._history), self.trouble)):
            yield Text(line, style="dim", no_wrap=True, overflow="crop")


def spent(history: History) -> str:
    """What the last rounds were spent on, in one line; empty before the first."""
    rows = history.rows[-_RECENT:]
    wall_s = sum(row.wall_s for row in rows)
    if not rows or wall_s <= 0:
        return ""
    shares = (f"{name} {sum(getattr(row, f'{name}_wall_s') for row in rows) / wall_s:.0%}" for name in PHASES)
    samples = sum(row.num_samples for row in rows)
    joules = sum(row.wall_j for row in rows)
    energy = f"; {joules / wall_s:.1f} W, {samples / joules:.4g} samples/J" if joules > 0 else ""
    sizes = f"{min(row.num_sites for row in rows)} to {max(row.num_sites for row in rows)} sites"
    return f"last {len(rows)} rounds: {sizes}, {', '.join(shares)}; {samples / wall_s:,.1f} samples/s{energy}"


def stop_of(run: Run) -> Stop:
    """The stop rules of a run's input; the usual ones where the file has none that are understood."""
    try:
        return Stop.model_validate(run.input.get("stop", {}))
    except ValueError:
        return Stop()


def watch(
    path: str | Path,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Run:
    """Show a run until it is over, on a terminal as a live view, else a line a round; returns it as it ended. Raises
    InputError where there is no results file to begin with."""
    run = open_run(path)
    view = Watched(console, run, clock)
    console.print(f"{printable(str(path))}: {printable(run.meta['scenario'])}, {run.status}", markup=False)
    is_live = console.is_interactive and run.status == RUNNING
    if is_live:
        view.start()
    try:
        view.follow(run.history())
        seen: Any = None
        while run.status == RUNNING:
            sleep(LOOK_S)
            try:
                if (now := _mark(path)) == seen:
                    continue
                began = clock()
                run, seen, view.trouble = open_run(path), now, ""
                view.follow(run.history())
                sleep(PACE * (clock() - began))
            except (InputError, OSError) as error:
                reason = str(error).splitlines()[0]
                view.trouble = f"not read since {datetime.now():%H:%M:%S}: {printable(reason, 200)}"
                seen = None
    finally:
        view.stop()
    return run


def _mark(path: str | Path) -> tuple[int, ...]:
    """What changes with the file."""
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _age_s(created_utc: str) -> float:
    """Seconds since then; 0 where it is no time."""
    try:
        return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(created_utc)).total_seconds())
    except (ValueError, TypeError):
        return 0.0
