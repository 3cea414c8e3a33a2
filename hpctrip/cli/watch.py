"""`watch`: follows a run that another process writes, through its results file alone.

The file is read and never locked for longer than a look takes, and nothing is written, so nothing here reaches the run.
The writer replaces the file as a whole: each reading is one snapshot. While the file cannot be read (a file system that
does not answer, a lost connection), `watch` waits.
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
from hpctrip.runner.progress import RECENT, round_line
from hpctrip.sim.rounds import History

LOOK_S = 1.0
"""Seconds between two looks at whether the file has changed."""
PACE = 20
"""After a reading the next one waits 20 times as long as it took."""
SILENT_S = 60.0
"""A run whose lock nobody holds and whose file has not changed for so long, and for ten rounds' time, is over: its
process was killed. The lock alone does not tell on file systems where locks of other machines are not seen."""
RUNNING = "running"


def watch(
    path: str | Path,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> Run:
    """Print a line for every round of a run until it has ended or its process is gone; returns its last snapshot.
    `clock` is the wall clock in seconds since 1970. Raises InputError where there is no results file to begin with."""
    snapshot, run = _stamp(path), open_run(path)  # in this order: a change in between is seen later
    console.print(f"{printable(str(path))}: {printable(run.meta['scenario'])}, {run.status}", markup=False)
    _print_rounds(run, 0, console)
    changed_at = snapshot[0] / 1e9 if snapshot else clock()
    is_readable = True
    while run.status == RUNNING:
        is_silent = clock() - changed_at > _silent_s(run)
        # in this order: the last version is written before the lock is released
        if not is_held(path) and is_silent and _stamp(path) == snapshot:
            console.print("no process writes this run any more, and it has not ended: it was killed")
            break
        sleep(LOOK_S)
        try:
            if (stamp := _stamp(path)) == snapshot:
                continue
            began, before = clock(), len(run.rounds)
            run, snapshot, changed_at, is_readable = open_run(path), stamp, began, True
            _print_rounds(run, before, console)
            sleep(PACE * (clock() - began))
        except (InputError, OSError) as error:
            if is_readable:
                reason = printable(str(error).splitlines()[0], 200)
                console.print(f"not read since {datetime.now():%H:%M:%S}: {reason}", markup=False)
            snapshot, is_readable = (), False
    if line := spent(run.history()):
        console.print(line)
    return run


def _print_rounds(run: Run, before: int, console: Console) -> None:
    """Print the rounds of this snapshot that come after the first `before`."""
    for row in run.history().rows[before:]:
        console.print(round_line(row))


def spent(history: History) -> str:
    """Shares of the phases, and the rates, of the last rounds, in one line; empty before the first."""
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
    rows = run.history().rows
    return max(SILENT_S, 10 * max((row.wall_s for row in rows[-RECENT:]), default=0.0))


def _stamp(path: str | Path) -> tuple[int, ...]:
    """Differs between two versions of the file; empty where it cannot be found."""
    try:
        status = Path(path).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
