"""The ranks of one machine: shared memory between them, and pipes on which they wait for each other.

MPI libraries wait by looking again and again: spinning takes the cores that the others need, and sleeping in between
is late at every step of a collective. A rank that reads from an empty pipe takes nothing and is woken at once. So
within a machine nothing goes through MPI: every rank lays its part into shared memory, and single bytes in pipes say
when. (41 ranks on two cores: see README, "Exchange".)

Two kinds of wave strictly alternate, so no memory is written while anybody still reads it:

* up: everyone has come here, and the first rank knows. What the others laid down before may now be read;
* down: the first rank lets everyone go on. What it laid down before may now be read.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import mmap
import os
import select
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hpctrip.ranks.phase import current_phase

ROW_BYTES = 2**20
"""Memory of each rank; longer vectors go in pieces. 41 ranks take 45 MB (a container's /dev/shm often has 64)."""
_MORE_ROWS = 2
"""The sum, and the board: what the first rank tells the others."""
SPLIT_BYTES = 2**18
"""From this size on, a piece is summed by all ranks, a slice each; below, another two waves cost more."""


class Node:
    """The ranks of `comm`, an MPI communicator of one machine. The collectives stand in the same order on all of them.

    Raises OSError on every rank where any of them cannot map the memory.
    """

    def __init__(self, comm: Any):
        self.rank, self.size = comm.rank, comm.size
        self._last = ""
        self._turns = 0  # downward waves so far
        if self.size > 1:
            self._join(comm)

    def _join(self, comm: Any) -> None:
        num_rows = self.size + _MORE_ROWS
        made = _made_folder(num_rows) if self.rank == 0 else None
        folder = comm.bcast(made and made[0])
        shared = _opened(folder, num_rows) if folder else None
        everywhere = all(comm.allgather(shared is not None))
        if made:  # all have it open: nothing is left over, however the job ends
            shutil.rmtree(folder, ignore_errors=True)
            made[1].close()
        if not everywhere or not shared:
            raise OSError("the ranks of this machine cannot share memory")
        rows, self._pipes = shared  # the pipes are closed when nobody holds them any more
        self._rows, self._total, self._board = rows[:-2], rows[-2], rows[-1].view(np.uint8)
        self._up, self._tickets, *down = (pipe.fileno() for pipe in self._pipes)
        self._down = [(pipe, _poll(pipe)) for pipe in down]
        if self.rank == 0:
            self._hand_out()

    def sum(self, vector: np.ndarray) -> np.ndarray | None:
        """Sum of everyone's int64 vector [n] at the first rank; None elsewhere."""
        if self.size == 1:
            return vector
        total = np.empty_like(vector) if self.rank == 0 else None
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
        """Fill `data` (contiguous) at every rank with what it holds at the first."""
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
        """Before anything is laid down for the next wave: where the last was of the same kind, one of the other."""
        if wave == self._last == "up":
            self._wave_down()
        elif wave == self._last == "down":
            self._wave_up()

    def _wave_up(self) -> None:
        self._last = "up"
        if self.rank == 0:
            with current_phase.waiting():
                os.read(self._up, 1)
            self._hand_out()
            return
        try:
            os.read(self._tickets, 1)
        except BlockingIOError:  # none left: this rank is the last, and wakes the first
            os.write(self._up, b"u")

    def _hand_out(self) -> None:
        """One ticket for each of the others but one. Whoever finds none is the last, so that one byte wakes the first
        rank once: woken by each, on few cores it would push them aside one after another."""
        os.write(self._tickets, bytes(self.size - 2))

    def _wave_down(self) -> None:
        # Two pipes in turn: nobody can take another's byte, for a pipe's next turn comes when all have taken theirs.
        self._last = "down"
        pipe, poll = self._down[self._turns % 2]
        self._turns += 1
        if self.rank == 0:
            os.write(pipe, bytes(self.size - 1))
            return
        with current_phase.waiting():
            # One byte wakes all who poll. Those who read are woken one by the other: 41 ranks on two cores took 1.5 ms
            # for a wave up and down, instead of 0.7.
            poll.poll()
            os.read(pipe, 1)


_PIPES = ("up", "tickets", "down0", "down1")
_MEMORY = "memory"
_PREFIX = "hpctrip-"
_PLACES = (Path("/dev/shm"), Path(tempfile.gettempdir()))
LEFTOVER_S = 60.0
"""A folder younger than this may be another job's that is just being made."""


def _made_folder(num_rows: int) -> tuple[Path, BinaryIO] | None:
    """A new folder with the memory and the pipes, and its memory's file, locked while this process lives; None where
    there is no room for it."""
    for parent in _PLACES:
        _remove_leftovers(parent)
        with suppress(OSError):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            try:
                file = io.BufferedWriter(io.FileIO(folder / _MEMORY, "x"))
                with suppress(
                    OSError
                ):  # a file system without locks: nobody will take this folder for a leftover
                    fcntl.flock(file, fcntl.LOCK_SH)
                # written, not only made long: a full disk shows here, and not as a bus error later
                for _ in range(num_rows):
                    file.write(bytes(ROW_BYTES))
                file.flush()
                for name in _PIPES:
                    os.mkfifo(folder / name, 0o600)
                return folder, file
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
    return None


def _remove_leftovers(parent: Path) -> None:
    """Remove folders of this user's jobs that were killed before all ranks had opened them: nobody holds the lock."""
    with suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                status = folder.lstat()
                if status.st_uid != os.geteuid() or time.time() - status.st_mtime < LEFTOVER_S:
                    continue
                with open(folder / _MEMORY, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)


def _poll(pipe: int) -> select.poll:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return poll


def _opened(folder: Path, num_rows: int) -> tuple[np.ndarray, list[io.FileIO]] | None:
    """The memory as int64 rows, and the pipes; None where this process does not find them: in a container of its own,
    say."""
    with suppress(OSError), ExitStack() as pipes_until_all_are_open:
        with open(folder / _MEMORY, "r+b") as file:
            memory = np.frombuffer(mmap.mmap(file.fileno(), num_rows * ROW_BYTES), np.int64)
        # for both ends: opening one would wait for the other
        pipes = [pipes_until_all_are_open.enter_context(io.FileIO(folder / name, "r+")) for name in _PIPES]
        os.set_blocking(pipes[_PIPES.index("tickets")].fileno(), False)
        pipes_until_all_are_open.pop_all()
        return memory.reshape(num_rows, -1), pipes
    return None


_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
_LARGE_BYTES = 65_536


def map_large_blocks() -> None:
    """Let this process's large vectors come from the system one by one, and go back to it; glibc only, else nothing.

    By default glibc cuts them from its heap once one has been freed, and the history's rows in between keep the heap
    from shrinking: rank 0 grew by 0.4 to 0.9 MB a round of a model of 0.8 MB. For an aggregator that trains nothing: a
    host would map and unmap every activation.
    """
    with suppress(OSError, AttributeError):  # no C library by that name, or one without mallopt
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
