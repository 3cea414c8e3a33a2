"""Ranks over MPI, with parameters exchanged by NCCL among the GPU hosts (or by gloo, which tests every line on CPUs).

Rank 0 owns no GPU (41 ranks, 40 GPUs; NCCL refuses two ranks on one GPU). The hosts all-reduce the int64 sums on
their devices and each applies the same server step where its model lives; the first host sends rank 0 the result.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import TracebackType

import numpy as np
import torch
import torch.distributed as dist

from hpctrip.base.errors import Fault, InputError
from hpctrip.ranks.base import hostname
from hpctrip.ranks.mpi import MpiRanks, _wait


class NcclRanks(MpiRanks):
    """MPI for decisions and counters, torch.distributed for the parameters. `backend` "" chooses nccl where there are
    GPUs, else gloo ($HPCTRIP_TORCH_BACKEND overrides)."""

    name = "nccl"

    def __init__(self, launched: int = 1, backend: str = ""):
        super().__init__(launched)
        backend = backend or os.environ.get(
            "HPCTRIP_TORCH_BACKEND", "nccl" if torch.cuda.is_available() else "gloo"
        )
        self.group = None
        self._check_gpus(backend)
        hosts = self.comm.Split(self.rank in self.hosts, self.rank)
        if self.rank not in self.hosts:
            return
        if backend == "nccl":
            torch.cuda.set_device(self.local_host)
        address = hosts.bcast(_free_address() if hosts.rank == 0 else None)
        dist.init_process_group(
            backend, init_method=f"tcp://{address}", rank=hosts.rank, world_size=hosts.size
        )
        self.group = dist.group.WORLD

    def _check_gpus(self, backend: str) -> None:
        """All ranks agree before any of them joins the group: joining waits for all, and a host without a GPU would
        never come. Raises InputError with the fault of every such host."""
        num_gpus = torch.cuda.device_count()
        fault = Fault(
            'ranks.transport = "nccl"',
            f"rank {self.rank}, host {self.local_host + 1} of {hostname()}, has no GPU of its own ({num_gpus} there)",
            "launch one host per GPU (ranks = GPUs + 1), or use mpi",
        )
        lacks = backend == "nccl" and self.rank in self.hosts and self.local_host >= num_gpus
        told = self.gather(fault if lacks else None)

        def agree() -> None:
            if faults := [fault for fault in told if fault is not None]:
                raise InputError(faults=faults)

        self.lead(agree)

    def combine(
        self, partial: torch.Tensor, num_params: int, step: Callable[[torch.Tensor], torch.Tensor]
    ) -> tuple[torch.Tensor, np.ndarray | None]:
        """All-reduce among the hosts, step on each; the first host tells the aggregator."""
        first = self.hosts[0]
        if self.group is not None:
            dist.all_reduce(partial, group=self.group)
            params, tail = step(partial), partial[num_params:].cpu().numpy()
            if self.size > 1 and self.rank == first:
                _wait(self.comm.Isend(params.cpu().numpy(), dest=0))
                _wait(self.comm.Isend(tail, dest=0))
            return params, tail if self.is_aggregator else None
        params = torch.empty(num_params, dtype=torch.float32)
        tail = np.empty(len(partial) - num_params, dtype=np.int64)
        _wait(self.comm.Irecv(params.numpy(), source=first))
        _wait(self.comm.Irecv(tail, source=first))
        return params.to(partial.device), tail

    def collect(self, slots: torch.Tensor) -> torch.Tensor | None:
        """The hosts step, each with the same slots; the first sends its own to rank 0."""
        first = self.hosts[0]
        if self.is_aggregator and self.size > 1 and slots.numel():
            _wait(self.comm.Irecv(slots.numpy(), source=first))
        elif self.rank == first and self.size > 1 and slots.numel():
            _wait(self.comm.Isend(slots.cpu().numpy(), dest=0))
        return slots if self.is_aggregator else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As over MPI; then the hosts leave their group."""
        super().__exit__(kind, error, trace)
        if self.group is not None:
            dist.destroy_process_group(self.group)
            self.group = None


def _free_address() -> str:
    """host:port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"{socket.gethostname()}:{probe.getsockname()[1]}"
