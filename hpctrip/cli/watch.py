"""Implementation of `hpctrip watch`: follows a run of another process by reading its results file.

It never writes, and locks the file only while it reads it, so the run is not affected. The writer replaces the file as
a whole, so each reading is one snapshot. While the file cannot be read (a file system that does not answer, a lost
connection), `watch` waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from rich.console import Console

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.record.lock import is_held
from hpctrip.record.reader import Run, open_run
from hpctrip.record.show import PHASES
from hpctrip.runner.progress import round_line
from hpctrip.sim.rounds import History

POLL_INTERVAL_S = 1.0
"""Seconds between two checks whether the file has changed."""
READ_INTERVAL_FACTOR = 20
"""`watch` pauses after each reading for this many times the time that the reading took."""
SILENT_S = 60.0
"""A run is taken to be killed if no process holds its lock and its file has not changed for this many seconds and for
the time of ten rounds. The lock alone is not enough: some file systems do not show locks of other machines."""
RUNNING = "running"
RECENT = 20
"""Number of last rounds that show the pace of a run."""


def watch(
    path: str | Path,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Run:
    """Print a line for every round of a run until it has ended or its process is gone; returns its last snapshot.

    `clock` is the wall clock in seconds since 1970. Raises InputError if there is no results file at the start.
    """
    # in this order, so that a change in between is noticed later
    snapshot, run = _stamp(path), open_run(path)
    console.print(f"{printable(str(path))}: {printable(run.meta['scenario'])}, {run.status}", markup=False)
    _print_rounds(run, 0, console)
    changed_at = snapshot[0] / 1e9 if snapshot else clock()
    is_readable = True
    while run.status == RUNNING:
        is_silent = clock() - changed_at > _silent_s(run)
        # in this order, as the writer releases its lock after the last version
        if not is_held(path) and is_silent and _stamp(path) == snapshot:
            console.print("no process writes this run any more, and it has not ended: it was killed")
            break
        sleep(POLL_INTERVAL_S)
        try:
            if (stamp := _stamp(path)) == snapshot:
                continue
            began, before = clock(), len(run.rounds)
            run, snapshot, changed_at, is_readable = open_run(path), stamp, began, True
            _print_rounds(run, before, console)
            sleep(READ_INTERVAL_FACTOR * (clock() - began))
        except (InputError, OSError) as error:
            if is_readable:
                reason = printable(str(error).splitlines()[0], 200)
                console.print(f"not read since {datetime.now():%H:%M:%S}: {reason}", markup=False)
            snapshot, is_readable = (), False
    if line := recent_summary(run.history()):
        console.print(line)
    return run


def _print_rounds(run: Run, before: int, console: Console) -> None:
    """Print the rounds of this snapshot that come after the first `before`."""
    for row in run.history().rows[before:]:
        console.print(round_line(row))


def recent_summary(history: History) -> str:
    """Cohort sizes, shares of the phases, and rates of the last rounds in one line; empty before the first round."""
    rows = history.rows[-RECENT:]
    wall_s = sum(row.wall_s for row in rows)
    if not rows or wall_s <= 0:
        return ""
    shares = (f"{name} {sum(getattr(row, f'{name}_wall_s') for row in rows) / wall_s:.0%}" for name in PHASES)
    samples = sum(row.num_samples for row in rows)
    joules = sum(row.wall_j for row in rows)
    energy = f"; {joules / wall_s:.1f} W, {samples / joules:.4g} samples/J" if joules > 0 else ""
    sizes = f"{min(row.num_sites for row in rows)} to {max(row.num_sites for row in rows)} sites"
    return f"last {len(rows)} rounds: {sizes}, {', '.join(shares)}; {samples / wall_s:,.1f} samples/s{energy}"


def _silent_s(run: Run) -> float:
    """Seconds without a change after which the run may be taken to be killed, see `SILENT_S`."""
    rows = run.history().rows
    return max(SILENT_S, 10 * max((row.wall_s for row in rows[-RECENT:]), default=0.0))


def _stamp(path: str | Path) -> tuple[int, ...]:
    """Modification time (ns), size and inode of the file, to tell its versions apart; empty if there is no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
