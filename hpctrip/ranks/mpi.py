"""Ranks over MPI. Importing this module initialises MPI."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch

from hpctrip.base import process
from hpctrip.base.errors import HpctripError, InputError, blame, full_report
from hpctrip.ranks.base import EndedByAggregator, Phase, Ranks, hostname
from hpctrip.ranks.node import Node

if process.ends_with_run and hasattr(_libc := ctypes.CDLL(None), "on_exit"):
    # C's exit calls MPI's own handlers, registered later, and then this one, which spares destroying torch's objects
    _libc.on_exit(_libc._exit, None)
try:
    import mpi4py

    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    raise InputError(
        "ranks.transport",
        f"mpi4py finds no MPI library ({str(error).splitlines()[0]})",
        "pip install mpich, or load your site's MPI module; one process alone needs no MPI",
    ) from None

T = TypeVar("T")
# an assignment of 100 sites takes 6 kB; one of 1,000 sites takes 62 kB and needs a second broadcast
_FIRST_PART_BYTES = 16384
READ_S = 0.5
"""Seconds within which a launcher should read what this rank has written."""
ABORT_S = 5.0
"""Seconds within which it should kill this rank after MPI_Abort."""


class MpiRanks(Ranks):
    """Every rank of MPI_COMM_WORLD. Sums and broadcasts go through MPI between machines and through `Node` within each.

    Waiting ranks sleep instead of spinning as MPI libraries do, so that a waiting aggregator takes no core from the
    hosts. Between machines they poll non-blocking collectives at intervals of at most 1 ms.
    """

    name = "mpi"

    def __init__(self, launched: int = 1, phase: Phase | None = None):
        """`launched` is the number of ranks that the launcher started, `phase` that of this rank."""
        super().__init__(phase)
        with self.phase.waiting():  # for the last rank to come
            self.comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self.comm.rank, self.comm.size
        self.library = MPI.Get_library_version().splitlines()[0].strip("\0 ")
        if self.size == 1 < launched:
            by_srun = f"srun --mpi={'pmix' if 'Open MPI' in self.library else 'pmi2'}, or "
            raise InputError(
                "ranks",
                f"the launcher started {launched} ranks, but MPI sees only 1: mpirun and mpi4py use different MPIs",
                f"use {by_srun if 'SLURM_STEP_ID' in os.environ else ''}the mpirun of {self.library}",
            )
        machine = machine_of(self.comm)
        self.local_host = sum(rank in self.hosts for rank in machine.allgather(self.rank)[: machine.rank])
        try:
            self._node = Node(machine, self.phase)
        except OSError:  # memory cannot be shared: treat every rank as a machine of its own
            self._node = Node(MPI.COMM_SELF, self.phase)
        machine.Free()
        self._nodes = self.comm.Split(0 if self._node.rank == 0 else MPI.UNDEFINED, self.rank)

    def decide_on_root(self, decide: Callable[[], T]) -> T:
        """Call `decide` at rank 0 and broadcast its result or the exit code of its error."""
        failure: HpctripError | None = None
        message = b""
        if self.is_aggregator:
            try:
                value = decide()
                message = pickle.dumps((0, value))
            except HpctripError as error:
                error.agreed = True
                failure = error
                message = pickle.dumps((error.exit_code, None))
        message = self._broadcast_bytes(message)
        if failure is not None:
            raise failure
        if self.is_aggregator:
            return value
        code, value = pickle.loads(message)  # from our own rank 0, never from a file
        if code:
            raise EndedByAggregator(code)
        return value

    def _broadcast_bytes(self, message: bytes) -> bytes:
        """Broadcast a message from rank 0. One collective suffices unless it is long: the first part holds its size."""
        whole = np.frombuffer(len(message).to_bytes(8, "little") + message, dtype=np.uint8)
        first = np.zeros(_FIRST_PART_BYTES, dtype=np.uint8)
        first[: len(whole)] = whole[: len(first)]
        self._broadcast(first)
        size = 8 + int.from_bytes(first[:8].tobytes(), "little")
        if size <= len(first):
            return first[8:size].tobytes()
        rest = whole[len(first) :].copy() if self.is_aggregator else np.empty(size - len(first), np.uint8)
        self._broadcast(rest)
        return first[8:].tobytes() + rest.tobytes()

    def _broadcast(self, data: np.ndarray) -> None:
        """Broadcast the array `data` from rank 0, in place. Rank 0 is the first rank of its machine."""
        if self._node.rank == 0 and self._nodes.size > 1:
            wait(self._nodes.Ibcast(data), self.phase)
        self._node.broadcast(data)

    def _receive(self, length: int, source: int) -> torch.Tensor:
        """Receive a row [length] from another rank."""
        row = torch.empty(length)
        wait(self.comm.Irecv(row.numpy(), source=source), self.phase)
        return row

    def gather(self, value: Any) -> list[Any] | None:
        """MPI_Gather of pickled objects to rank 0."""
        with self.phase.waiting():
            return self.comm.gather(value)

    def combine(
        self, partial: torch.Tensor, length: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """Reduce to rank 0, step there, broadcast the new parameters."""
        device = partial.device
        total = self._summed(partial.cpu().numpy())
        if total is not None:
            params = step(torch.from_numpy(total).to(device)).cpu().contiguous()
        else:
            params = torch.empty(length, dtype=torch.float32)
        self._broadcast(params.numpy())
        return params.to(device), None if total is None else total[length:]

    def gather_rows(self, rows: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor] | None:
        """Gather the keys and lengths first, then send row by row, so that only rank 0 holds more than one copy."""
        lengths_by_rank = self.gather({key: len(row) for key, row in rows.items()})
        if lengths_by_rank is None:
            for row in rows.values():
                wait(self.comm.Isend(row.cpu().numpy(), dest=0), self.phase)
            return None
        gathered = dict(rows)
        for rank, lengths in enumerate(lengths_by_rank[1:], start=1):
            for key, length in lengths.items():
                gathered[key] = self._receive(length, rank)
        return gathered

    def scatter_rows(
        self, rows: Mapping[int, torch.Tensor] | None, destinations: np.ndarray
    ) -> dict[int, torch.Tensor]:
        """Broadcast the lengths first, then send each row to its destination."""
        lengths = self.decide_on_root(lambda: {key: len(row) for key, row in (rows or {}).items()})
        received = {}
        for key, length in lengths.items():
            destination = int(destinations[key])
            if rows is not None and destination != self.rank:
                wait(self.comm.Isend(rows[key].numpy(), dest=destination), self.phase)
            elif rows is not None:
                received[key] = rows[key]
            elif destination == self.rank:
                received[key] = self._receive(length, 0)
        return received

    def abort(self, code: int) -> None:
        """End the job by MPI_Abort. MPICH asks the launcher only for MPI_COMM_WORLD, and then returns; to the ranks of
        a duplicate it sends a message, which is not read outside MPI. The launcher drops what it has not yet read, and
        kills no rank while it waits for an unreachable machine: hence the pause and the alarm.
        """
        time.sleep(READ_S)
        signal.setitimer(signal.ITIMER_REAL, ABORT_S)
        MPI.COMM_WORLD.Abort(code)
        time.sleep(2 * ABORT_S)

    def total(self, counts: np.ndarray) -> np.ndarray | None:
        """Sum the vectors within each machine, then over the machines at rank 0."""
        return self._summed(counts.copy())

    def _summed(self, vector: np.ndarray) -> np.ndarray | None:
        """`total`, which overwrites the vectors of some ranks: a long one takes no more memory."""
        total = self._node.sum(vector)
        if total is None or self._nodes.size == 1:
            return total
        sent, received = (MPI.IN_PLACE, total) if self.is_aggregator else (total, None)
        wait(self._nodes.Ireduce(sent, received, op=MPI.SUM), self.phase)
        return received

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Abort the job on an exception that the other ranks have not learnt of in a collective."""
        if error is None or (isinstance(error, HpctripError) and error.agreed):
            _free(self._nodes, self.comm)
            return
        print(_report(error, self.rank), file=sys.stderr, flush=True)
        self.abort(130 if isinstance(error, KeyboardInterrupt) else blame(error)[1])


def _free(*comms: MPI.Comm) -> None:
    """Free communicators: MPICH has two thousand, fewer than the runs of a script."""
    for comm in comms:
        if comm != MPI.COMM_NULL:
            comm.Free()


def machine_of(comm: MPI.Comm) -> MPI.Comm:
    """The ranks of a communicator that are on this rank's machine."""
    return comm.Split_type(MPI.COMM_TYPE_SHARED)


def wait(request: MPI.Request, phase: Phase) -> None:
    """Complete a non-blocking operation by polling, without occupying a core; `phase` waits meanwhile.

    The pause between two polls is a twentieth of the time waited so far, at least 20 us and at most 1 ms, so polling
    late costs about 5 % at most. A collective over a deep tree progresses only while its ranks poll.
    """
    began = time.perf_counter()
    with phase.waiting():
        while not request.Test():
            time.sleep(min(max((time.perf_counter() - began) / 20, 20e-6), 1e-3))


def _report(error: BaseException, rank: int) -> str:
    """Message before this rank ends the job: the lines of a HpctripError, or else its full report."""
    who = f"hpctrip: rank {rank} on {hostname()}"
    if isinstance(error, HpctripError):
        return "\n".join(f"{who}: {line}" for line in str(error).splitlines())
    if isinstance(error, KeyboardInterrupt):
        return f"{who}: interrupted, ends the job at once"
    return f"{who} failed and ends the job\n{full_report(error)}"
