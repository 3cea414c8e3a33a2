"""Ends a job that does not start: a guardian process beside each rank, until the watchdogs of all ranks run.

A thread cannot do that: loading a library from a dead file system and MPI_Init hold Python's global lock, and in a
stopped process no thread runs. The guardian is a process forked before large libraries are loaded. It reads from a pipe
how far the start has come, or that the rank has ended. After the limit it reports the stage and kills the rank,
whereupon the launcher ends the job.

Ranks that block the start, stopped or still loading, are reported first. The guardians of the others, which only wait,
have a longer limit, within which the launcher usually ends them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from contextlib import suppress

from hpctrip.base.errors import InputError
from hpctrip.base.process import is_stopped, launched_rank, launched_size

LIMIT = "HPCTRIP_START_S"
"""Environment variable with the limit in seconds: the input has not been read yet."""
DEFAULT_S = 600.0
LOADING, SHARING, MEETING, READING = range(4)
"""Stages of the start: loading Python packages; waiting for the process that loads them for this machine; waiting for
the others in MPI_Init; rank 0 reads the input."""
_MESSAGE = struct.Struct("ii")
"""A stage, and the id of the process that is in it."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Guardian:
    """Context whose body is the start of this rank; it has a guardian process if a launcher started several ranks."""

    handed_over = -1
    """The pipe to the guardian of a launched process whose place this one has taken (see `hpctrip.ranks.start`), or
    which was begun before; the next guardian is this one. -1: there is none."""

    def __init__(self) -> None:
        self._child, self.pipe = 0, -1

    def __enter__(self) -> Guardian:
        """Raises InputError at rank 0 where the limit is no positive number; the other ranks exit without a message."""
        if Guardian.handed_over >= 0:
            self.pipe, Guardian.handed_over = Guardian.handed_over, -1
        elif launched_size() > 1:
            limit_s = _limit_s()
            reader, self.pipe = os.pipe()
            launched = os.getpid()
            self._child = os.fork()
            if not self._child:
                try:
                    _guard(launched, reader, limit_s)
                finally:
                    os._exit(0)
            os.close(reader)
        return self

    def reach(self, stage: int) -> None:
        """Report that this rank has reached a stage, in this process."""
        if self.pipe >= 0:
            with suppress(OSError):  # the guardian has been killed; the start goes on without it
                os.write(self.pipe, _MESSAGE.pack(stage, os.getpid()))

    def over(self) -> None:
        """End the guardian process, once the watchdogs of all ranks run."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1
        if self._child:
            with suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
            self._child = 0

    def __exit__(self, *error: object) -> None:
        self.over()


def _limit_s() -> float:
    text = os.environ.get(LIMIT, str(DEFAULT_S))
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    if launched_rank():
        raise InputError(faults=[])
    raise InputError(LIMIT, f"is {text[:40]!r}", "a number of seconds above 0")


def _guard(launched: int, pipe: int, limit_s: float) -> None:
    """The guardian process: returns when the rank ends, or kills the process `launched` after the limit."""
    for number in _SIGNALS:  # these signals are meant for the rank
        signal.signal(number, signal.SIG_IGN)
    os.dup2(pipe, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the launcher waits until all copies of its pipes are closed
    slice_s, waited_s, stage, process = min(1.0, limit_s / 20), 0.0, LOADING, launched
    while True:
        if select.select([0], [], [], slice_s)[0]:
            if not (message := os.read(0, _MESSAGE.size)):
                return
            stage, process = _MESSAGE.unpack(message)
            continue
        waited_s += slice_s  # so a time for which the whole job is suspended does not count
        stopped = is_stopped(process)
        in_the_way = stopped or stage == LOADING
        patience_s = 0.0 if in_the_way else limit_s / (20 if launched_rank() == 0 else 10)
        if waited_s >= limit_s + patience_s:
            os.write(2, f"{_report(process, limit_s, stage, stopped)}\n".encode())
            time.sleep(0.5)  # so that the launcher has read it
            if os.getppid() == launched:
                os.kill(launched, signal.SIGKILL)
            return


def _report(process: int, limit_s: float, stage: int, stopped: bool) -> str:
    rank, size = launched_rank(), launched_size()
    where = {
        LOADING: "loads Python packages",
        SHARING: "waits for the process that loads Python packages for all ranks of its machine",
        MEETING: f"waits in MPI_Init for others of the {size} ranks; those without a report here have not come that "
        "far: see the processes on their machines",
        READING: "waits for rank 0 to read the input" if rank else "reads the input",
    }[stage]
    return (
        f"hpctrip: rank {rank} on {socket.gethostname()} (process {process}): the job has not started within "
        f"{limit_s:g} s ({LIMIT}) and ends now: this rank {'is stopped; before, it ' if stopped else ''}{where}"
    )
