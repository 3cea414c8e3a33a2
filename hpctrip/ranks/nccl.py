"""Ranks over MPI whose GPU hosts exchange parameters by NCCL, or by gloo on CPUs (for tests).

Rank 0 owns no GPU (41 ranks, 40 GPUs; NCCL refuses two ranks on one GPU). The hosts all-reduce the int64 sums on
their devices, and each applies the same server step there; the first host sends rank 0 the result.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.text import printable
from hpctrip.ranks.base import Phase, choose_device, gpu_identity, hostname
from hpctrip.ranks.mpi import MpiRanks, wait

BACKEND = "HPCTRIP_TORCH_BACKEND"
"""Environment variable with the backend of torch.distributed; absent: by whether the hosts have GPUs."""
TIMEOUT = timedelta(days=20)
"""Timeout of torch's collectives, which only the watchdog is to end. Some of torch's timers hold at most 2^31 ms."""


class NcclRanks(MpiRanks):
    """MPI for decisions and counters, torch.distributed for parameters: nccl where hosts have GPUs, else gloo;
    $HPCTRIP_TORCH_BACKEND, "nccl" or "gloo", overrides it."""

    name = "nccl"

    def __init__(self, launched: int = 1, phase: Phase | None = None):
        super().__init__(launched, phase)
        self.group = None
        device = choose_device("auto", self)
        # agreed before any rank joins the group, because joining waits for all
        gpus = self.gather((hostname(), gpu_identity(device), self.local_host, torch.cuda.device_count()))
        backend = self.decide_on_root(lambda: choose_backend(gpus or [], self.hosts))
        if backend == "nccl" and self.rank in self.hosts:
            torch.cuda.set_device(device)
        with self.phase.waiting():
            hosts = self.comm.Split(self.rank in self.hosts, self.rank)
            if self.rank in self.hosts:
                store = shared_store(hosts)
                dist.init_process_group(
                    backend, store=store, rank=hosts.rank, world_size=hosts.size, timeout=TIMEOUT
                )
                self.group = dist.group.WORLD
            hosts.Free()

    def combine(
        self, partial: torch.Tensor, length: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """All-reduce among the hosts and apply the step on each; the first host sends the result to the aggregator."""
        first = self.hosts[0]
        if self.group is not None:
            with self.phase.waiting():
                dist.all_reduce(partial, group=self.group)
                if partial.is_cuda:  # NCCL has only queued it
                    torch.cuda.current_stream(partial.device).synchronize()
            params, tail = step(partial), partial[length:].cpu().numpy()
            if self.size > 1 and self.rank == first:
                wait(self.comm.Isend(params.cpu().numpy(), dest=0), self.phase)
                wait(self.comm.Isend(tail, dest=0), self.phase)
            return params, tail if self.is_aggregator else None
        params = torch.empty(length, dtype=torch.float32)
        tail = np.empty(len(partial) - length, dtype=np.int64)
        wait(self.comm.Irecv(params.numpy(), source=first), self.phase)
        wait(self.comm.Irecv(tail, source=first), self.phase)
        return params.to(partial.device), tail

    def collect(self, slots: torch.Tensor) -> torch.Tensor | None:
        """Send the slots of the first host to rank 0; all hosts have the same."""
        first = self.hosts[0]
        if self.is_aggregator and self.size > 1 and slots.numel():
            wait(self.comm.Irecv(slots.numpy(), source=first), self.phase)
        elif self.rank == first and self.size > 1 and slots.numel():
            wait(self.comm.Isend(slots.cpu().numpy(), dest=0), self.phase)
        return slots if self.is_aggregator else None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave the MPI job, then destroy the process group of the hosts."""
        super().__exit__(kind, error, trace)
        if self.group is not None:
            dist.destroy_process_group(self.group)
            self.group = None


def shared_store(comm: Any) -> dist.TCPStore:
    """The store through which the ranks of an MPI communicator form a group; its server is at the first of them. The
    system chooses the port when the server binds it, so that no other program can take it before. A collective."""
    name, is_first = socket.gethostname(), comm.rank == 0
    first = dist.TCPStore(name, 0, comm.size, True, wait_for_workers=False) if is_first else None
    name, port = comm.bcast((name, first and first.port))
    store = first or dist.TCPStore(name, port, comm.size, wait_for_workers=False)
    store.set_timeout(TIMEOUT)  # backends wait in it for ranks whose first collective comes later
    return store


def choose_backend(gpus: Sequence[tuple[str, str, int, int]], hosts: range) -> str:
    """The torch.distributed backend that all hosts use, from every rank's machine, GPU ("": none), index among the
    hosts of its machine, and number of GPUs there. Raises InputError with a fault for every host that nccl leaves
    without a GPU of its own, and for an unknown backend in the environment."""
    backend = os.environ.get(BACKEND) or ("nccl" if any(gpus[r][1] for r in hosts) else "gloo")
    if backend not in ("nccl", "gloo"):
        raise InputError(
            f"{BACKEND}={printable(backend, 40)}", "is not a backend", 'use "nccl" or "gloo", or unset it'
        )
    owners: set[tuple[str, str]] = set()
    faults = []
    for rank in hosts:
        machine, gpu, local_host, num_gpus = gpus[rank]
        if not gpu or (machine, gpu) in owners:
            faults.append(
                Fault(
                    'ranks.transport = "nccl"',
                    f"rank {rank}, host {local_host + 1} of {machine}, has no GPU of its own ({num_gpus} there)",
                    "launch one host per GPU (ranks = GPUs + 1), or use mpi",
                )
            )
        owners.add((machine, gpu))
    if backend == "nccl" and faults:
        raise InputError(faults=faults)
    return backend
