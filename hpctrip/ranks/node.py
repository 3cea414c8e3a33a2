"""Collectives within one machine: shared memory for the data, and pipes for synchronisation.

MPI libraries wait by polling: spinning takes cores from other ranks, and sleeping between polls adds a delay at every
step of a collective. A rank that reads from an empty pipe uses no CPU and is woken at once. Within a machine, ranks
therefore exchange data through shared memory and synchronise by single bytes in pipes, without MPI.

Two kinds of wave strictly alternate, so that no memory is written while another rank reads it:

* up: all ranks have arrived and the first rank is notified; it may now read what the others have written;
* down: the first rank releases the others; they may now read what it has written.
"""

from __future__ import annotations

import io
import mmap
import os
import select
from contextlib import suppress
from typing import Any

import numpy as np

from hpctrip.ranks.base import Phase

ROW_BYTES = 2**20
"""Memory of each rank; longer vectors go in pieces. 41 ranks take 45 MB."""
_MORE_ROWS = 2
"""Rows for the sum and for the broadcasts of the first rank."""
SPLIT_BYTES = 2**18
"""Size from which all ranks sum a piece together, a slice each; below it, two more waves cost more than they save."""


class Node:
    """The ranks of `comm`, an MPI communicator within one machine. All call the same collectives in the same order.

    Raises OSError at every rank where any of them cannot map the shared memory.
    """

    def __init__(self, comm: Any, phase: Phase):
        """`phase` is this rank's, which counts the time of a wait apart."""
        self.rank, self.size, self._phase = comm.rank, comm.size, phase
        self._last = ""
        self._num_down = 0  # number of downward waves so far
        if self.size == 1:
            return
        num_rows = self.size + _MORE_ROWS
        created = _create(num_rows * ROW_BYTES) if self.rank == 0 else []
        address = comm.bcast((os.getpid(), _pid_namespace(), [file.fileno() for file in created]))
        files = _open(*address)
        if not all(comm.allgather(bool(files))):  # rank 0 keeps what it has created until all have opened it
            raise OSError("the ranks of this machine cannot share memory")
        memory, *self._pipes = files  # the pipes are closed when their last reference goes
        rows = np.frombuffer(mmap.mmap(memory.fileno(), num_rows * ROW_BYTES), np.int64).reshape(num_rows, -1)
        self._rows, self._total, self._board = rows[:-2], rows[-2], rows[-1].view(np.uint8)
        self._up, self._tickets, *down = (pipe.fileno() for pipe in self._pipes)
        os.set_blocking(self._tickets, False)
        self._down = [(pipe, select.poll()) for pipe in down]
        for pipe, poll in self._down:
            poll.register(pipe, select.POLLIN)
        if self.rank == 0:
            self._hand_out()

    def sum(self, vector: np.ndarray) -> np.ndarray | None:
        """Sum of the int64 vectors [n] of all ranks, at the first rank, in place of its own; None elsewhere."""
        if self.size == 1:
            return vector
        total = vector if self.rank == 0 else None
        capacity = self._rows.shape[1]
        for start in range(0, len(vector), capacity):
            piece = vector[start : start + capacity]
            n = len(piece)
            self._alternate("up")
            self._rows[self.rank, :n] = piece
            self._wave_up()
            if piece.nbytes >= SPLIT_BYTES:
                self._wave_down()
                mine = slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)
                np.sum(self._rows[:, mine], axis=0, out=self._total[mine])
                self._wave_up()
                if total is not None:
                    total[start : start + n] = self._total[:n]
            elif total is not None:
                np.sum(self._rows[:, :n], axis=0, out=total[start : start + n])
        return total

    def broadcast(self, data: np.ndarray) -> None:
        """Broadcast the contiguous array `data` from the first rank, in place."""
        if self.size == 1:
            return
        raw = data.reshape(-1).view(np.uint8)
        for start in range(0, len(raw), ROW_BYTES):
            piece = raw[start : start + ROW_BYTES]
            self._alternate("down")
            if self.rank == 0:
                self._board[: len(piece)] = piece
            self._wave_down()
            if self.rank > 0:
                piece[:] = self._board[: len(piece)]

    def _alternate(self, wave: str) -> None:
        """Prepare a wave before its data are written: after one of the same kind, make one of the other kind first."""
        if wave == self._last == "up":
            self._wave_down()
        elif wave == self._last == "down":
            self._wave_up()

    def _wave_up(self) -> None:
        self._last = "up"
        if self.rank == 0:
            with self._phase.waiting():
                os.read(self._up, 1)
            self._hand_out()
            return
        try:
            os.read(self._tickets, 1)
        except BlockingIOError:  # none left: this rank is the last to arrive and wakes the first
            os.write(self._up, b"u")

    def _hand_out(self) -> None:
        """Write one ticket less than there are other ranks. The rank that finds none is the last, so the first rank is
        woken once: on few cores, waking it for each arrival would preempt the ranks still at work."""
        os.write(self._tickets, bytes(self.size - 2))

    def _wave_down(self) -> None:
        # Two pipes alternate, so that no rank takes the byte of another: a pipe is used again after all have read it.
        self._last = "down"
        pipe, poll = self._down[self._num_down % 2]
        self._num_down += 1
        if self.rank == 0:
            os.write(pipe, bytes(self.size - 1))
            return
        with self._phase.waiting():
            # A byte wakes all ranks that poll at once, but those that read only one after another: with 41 ranks on
            # two cores, a wave up and down took 1.5 ms instead of 0.7.
            poll.poll()
            os.read(pipe, 1)


_NUM_PIPES = 4
"""One upward, one for the tickets, two downward."""


def _create(num_bytes: int) -> list[io.FileIO]:
    """The shared memory and the pipes, which have no names and vanish with the last process that has them open. Empty
    where the system has no such memory."""
    with suppress(OSError, AttributeError):  # no more files for this process; not Linux
        files = [io.FileIO(os.memfd_create("hpctrip"), "r+")]
        files[0].truncate(num_bytes)
        for _ in range(_NUM_PIPES):
            read, write = os.pipe()
            os.close(write)
            files.append(io.FileIO(read))
        return files
    return []


def _open(pid: int, namespace: str, numbers: list[int]) -> list[io.FileIO]:
    """Open the files that the process `pid` has under these numbers. Empty where this process does not see that one, as
    from a container of its own."""
    with suppress(OSError):
        if namespace == _pid_namespace():
            # read-write: opening one end of a pipe would wait for the other
            return [io.FileIO(f"/proc/{pid}/fd/{number}", "r+") for number in numbers]
    return []


def _pid_namespace() -> str:
    """Identifier that is the same for all processes among which a process id has one meaning."""
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""
