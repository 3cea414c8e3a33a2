"""The transport between the ranks. MPI, and what else is large, is imported only where it is used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.process import launched_size
from hpctrip.base.text import counted
from hpctrip.config.component import Component
from hpctrip.config.identity import NotInResult

if TYPE_CHECKING:
    from hpctrip.ranks.base import Ranks


class RanksInput(Component):
    """Transport, device and threads of the ranks. Only `threads` can change a result, in its last bits."""

    transport: NotInResult[Literal["auto", "serial", "mpi", "nccl"]] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: NotInResult[Literal["auto", "cpu", "cuda"]] = "auto"
    """auto: the node's GPUs, if any."""
    threads: int = Field(1, ge=1, le=1024)
    """torch threads per rank. The input sets it, not the machine, because the rounding of kernels may depend on the
    number of threads. Use more ranks rather than threads (measured: two ranks of one thread are faster than one of
    two)."""

    def warnings(self, cores: Iterable[int]) -> list[str]:
        """A warning where one of some ranks may use fewer `cores` than it has threads."""
        if (least := min(cores, default=self.threads)) >= self.threads:
            return []
        hint = f"add --bind-to none to Open MPI's mpirun, --cpus-per-task={self.threads} to srun, or use more ranks"
        lacking = f"but {counted(least, 'core')} may be used by a rank, which slows it down"
        return [f"ranks.threads = {self.threads}, {lacking}: {hint}"]


def open_ranks() -> Ranks:
    """Open the ranks of this job: MPI's under a launcher, else this process alone.

    Raises InputError where more than one rank was launched but cannot be joined, as by torchrun.
    """
    launched, by_torchrun = launched_size(), os.environ.get("WORLD_SIZE", "1")
    if launched == 1 and "TORCHELASTIC_RUN_ID" in os.environ and by_torchrun != "1":
        problem = (
            f"has started {by_torchrun} processes, which would be runs of their own: ranks are joined by MPI"
        )
        raise InputError("torchrun", problem, f"start them by mpirun -n {by_torchrun} or srun instead")
    if launched == 1:
        from hpctrip.ranks.base import Ranks

        return Ranks()
    from hpctrip.ranks.mpi import MpiRanks

    return MpiRanks(launched)


def with_transport(ranks: Ranks, transport: str) -> Ranks:
    """The ranks over the transport that the input names; "auto" returns them unchanged. Raises InputError for "serial"
    with several ranks."""
    if transport in ("auto", ranks.name):
        return ranks
    if transport == "serial":
        raise InputError(
            'ranks.transport = "serial"',
            f"{ranks.size} ranks were launched",
            'use "auto", or launch one process',
        )
    if transport == "nccl":
        from hpctrip.ranks.nccl import NcclRanks

        return NcclRanks(ranks.size, ranks.phase)
    from hpctrip.ranks.mpi import MpiRanks

    return MpiRanks(ranks.size, ranks.phase)
