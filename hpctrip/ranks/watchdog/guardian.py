"""Ends a job that does not start: a guardian process beside each rank, until all ranks have met and watch each other.

Nothing within the process could do that. Loading a library from a dead file system and MPI_Init hold Python's lock, so
no thread runs; and a stopped process does nothing at all. The guardian is a fork made before anything large is loaded.
It waits on a pipe, through which it hears how far its rank has come and that it has ended; after the limit it says
where its rank is and kills it, which every launcher takes as the end of the job.

Who is in the way speaks first: a stopped rank and one that still loads. The others only wait, so they keep quiet for a
while longer, in which the launcher usually ends them.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from contextlib import suppress
from types import TracebackType

from hpctrip.base.errors import InputError
from hpctrip.ranks.launched import launched_rank, launched_size

LIMIT = "HPCTRIP_START_S"
"""The environment variable that holds the limit in seconds: no input has been read yet."""
DEFAULT_S = 600.0
LOADING, MEETING, READING = range(3)
"""How far a rank has come: it loads Python packages; it waits for the others in MPI_Init; all have met, and rank 0
reads the input."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Guardian:
    """A context whose body is the start of this rank, and guarded where a launcher started several."""

    def __init__(self) -> None:
        self._child, self._pipe = 0, -1

    def __enter__(self) -> Guardian:
        """Raises InputError at rank 0 where the limit is no time; the other ranks leave quietly."""
        if launched_size() > 1:
            limit_s = _limit_s()
            reader, self._pipe = os.pipe()
            process = os.getpid()
            self._child = os.fork()
            if not self._child:
                try:
                    _guard(process, reader, limit_s)
                finally:
                    os._exit(0)
            os.close(reader)
        return self

    def reach(self, stage: int) -> None:
        """This rank has come as far as that."""
        if self._child:
            with suppress(OSError):  # it has been killed: nobody waits, but the start goes on
                os.write(self._pipe, bytes([stage]))

    def over(self) -> None:
        """All ranks watch each other from now on: the guardian leaves."""
        if self._child:
            with suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
            os.close(self._pipe)
            self._child = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over()


def _limit_s() -> float:
    text = os.environ.get(LIMIT, str(DEFAULT_S))
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    if launched_rank():
        raise SystemExit(InputError.exit_code)
    raise InputError(LIMIT, f"is {text[:40]!r}", "a number of seconds above 0")


def _guard(process: int, pipe: int, limit_s: float) -> None:
    """The life of the guardian of this process: it ends with the process, or ends it."""
    for number in _SIGNALS:  # they are meant for the rank
        signal.signal(number, signal.SIG_IGN)
    os.dup2(pipe, 0)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # what the launcher waits for must not hang on the guardian
    slice_s, waited_s, stage = min(1.0, limit_s / 20), 0.0, LOADING
    while True:
        if select.select([0], [], [], slice_s)[0]:
            if not (told := os.read(0, 1)):
                return
            stage = told[0]
            continue
        waited_s += slice_s  # so a time for which the whole job is suspended does not count
        stopped = _is_stopped(process)
        in_the_way = stopped or stage == LOADING
        patience_s = 0.0 if in_the_way else limit_s / (20 if launched_rank() == 0 else 10)
        if waited_s >= limit_s + patience_s:
            os.write(2, f"{_report(process, limit_s, stage, stopped)}\n".encode())
            time.sleep(0.5)  # so that the launcher has read it
            if os.getppid() == process:
                os.kill(process, signal.SIGKILL)
            return


def _report(process: int, limit_s: float, stage: int, stopped: bool) -> str:
    rank, size = launched_rank(), launched_size()
    where = {
        LOADING: "loads Python packages",
        MEETING: f"waits in MPI_Init for others of the {size} ranks; who says nothing here never came so far: see the "
        "processes on its machine",
        READING: "waits for rank 0 to read the input" if rank else "reads the input",
    }[stage]
    return (
        f"hpctrip: rank {rank} on {socket.gethostname()} (process {process}): the job has not started within "
        f"{limit_s:g} s ({LIMIT}) and ends now: this rank {'is stopped; before, it ' if stopped else ''}{where}"
    )


def _is_stopped(process: int) -> bool:
    """As far as the system tells (Linux)."""
    with suppress(OSError), open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] in "tT"
    return False
