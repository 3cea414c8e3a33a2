"""The transport between the ranks. MPI, and what else is large, is imported only where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.process import launched_size
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


def open_ranks() -> Ranks:
    """Open the ranks of this job: MPI's under a launcher, else this process alone.

    Raises InputError where more than one rank was launched but cannot be joined.
    """
    if (launched := launched_size()) == 1:
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
