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

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.record.lock import is_abandoned, is_held
from hpctrip.record.reader import Run, open_run
from hpctrip.record.show import PHASES
from hpctrip.runner.progress import round_line

POLL_INTERVAL_S = 1.0
"""Seconds between two checks whether the file has changed."""
READ_INTERVAL_FACTOR = 20
"""`watch` pauses after each reading for this many times the time that the reading took."""
SILENT_S = 60.0
"""A run whose lock may be that of another machine (`is_abandoned`) is taken to be killed if the lock is not seen and
the file has not changed for this many seconds and for the time of ten rounds."""
RUNNING = "running"
RECENT = 20
"""Number of last rounds that show the pace of a run."""


def watch(path: str | Path, say: Callable[[str], None]) -> Run:
    """Say a line for every round of a run until it has ended or its process is gone; returns its last snapshot.
    Raises InputError if there is no results file at the start."""
    # in this order, so that a change in between is noticed later
    snapshot, run = _stamp(path), open_run(path)
    say(f"{printable(str(path))}: {printable(run.meta['scenario'])}, {run.status}")
    names = run.sites.get("name", ())
    for row in run.history().rows:
        say(round_line(row, names))
    changed_at = snapshot[0] / 1e9 if snapshot else time.time()
    is_readable = True
    while run.status == RUNNING:
        is_silent = time.time() - changed_at > max(SILENT_S, 10 * run.rounds["wall_s"].tail(RECENT).max())
        # in this order, as the writer releases its lock after the last version
        is_gone = (snapshot and is_abandoned(path)) or (is_silent and not is_held(path))
        if is_gone and _stamp(path) == snapshot:
            say("no process writes this run any more, and it has not ended: it was killed")
            break
        time.sleep(POLL_INTERVAL_S)
        try:
            if (stamp := _stamp(path)) == snapshot:
                continue
            began, before = time.time(), len(run.rounds)
            run, snapshot, changed_at, is_readable = open_run(path), stamp, began, True
            for row in run.history().rows[before:]:
                say(round_line(row, names))
            time.sleep(READ_INTERVAL_FACTOR * (time.time() - began))
        except (InputError, OSError) as error:
            if is_readable:
                reason = printable(str(error).splitlines()[0], 200)
                say(f"not read since {datetime.now():%H:%M:%S}: {reason}")
            snapshot, is_readable = (), False
    if line := recent_summary(run):
        say(line)
    return run


def recent_summary(run: Run) -> str:
    """Cohort sizes, shares of the phases, and rates of the last rounds in one line; empty before the first round."""
    rounds = run.rounds.tail(RECENT)
    sums, k = rounds.sum(numeric_only=True, skipna=False), rounds["num_sites"]
    if not sums["wall_s"] > 0:
        return ""
    shares = ", ".join(f"{name} {sums[f'{name}_wall_s'] / sums['wall_s']:.0%}" for name in PHASES)
    known = rounds[rounds["wall_j"] > 0].sum(numeric_only=True)
    joules, samples = known["wall_j"], known["num_samples"]
    energy = f"; {joules / known['wall_s']:.1f} W, {samples / joules:.4g} samples/J" if joules > 0 else ""
    rate = f"{sums['num_samples'] / sums['wall_s']:,.1f} samples/s"
    return f"last {len(rounds)} rounds: {k.min()} to {k.max()} sites, {shares}; {rate}{energy}"


def _stamp(path: str | Path) -> tuple[int, ...]:
    """Modification time (ns), size and inode, which identify a version of the file; empty if there is no file."""
    try:
        status = Path(path).stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
