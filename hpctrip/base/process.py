"""Facts about processes of this machine, from /proc/PID/stat (Linux, proc(5)) where that is known."""

from __future__ import annotations

import os
import time
from contextlib import suppress

ends_with_run = False
"""Whether this process ends with the run that it makes, as the command line does: set by its main function."""
started: float | None = None
"""When the process started whose place this one has taken, in seconds since 1970; None: it has taken no place."""


def is_stopped(process: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger; False where that is not known."""
    return _stat(process)[:1] in (["t"], ["T"])


def has_terminal(process: int) -> bool:
    """Whether a process has a controlling terminal; False where that is not known."""
    return _stat(process)[4:5] not in ([], ["0"])


def start_time() -> float:
    """When this process started, in seconds since 1970; where that is not known, now."""
    if started is not None:
        return started
    ticks = _stat(os.getpid())[19:20]
    if not ticks:
        return time.time()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks[0]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def _stat(process: int) -> list[str]:
    """The fields after the name of the process, from its state (field 3) on; empty where they are not known."""
    with suppress(OSError), open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []
