"""Opens the ranks over a transport. MPI is imported only where it is used."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.config.component import Component
from hpctrip.config.identity import NotInResult
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.launched import launched_size
from hpctrip.ranks.serial import SerialRanks


class RanksInput(Component):
    """Where it runs. Only `threads` can change a result, in the last bits."""

    transport: NotInResult[Literal["auto", "serial", "mpi", "nccl"]] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: NotInResult[Literal["auto", "cpu", "cuda"]] = "auto"
    """auto: the node's GPUs where there are any."""
    threads: int = Field(1, ge=1, le=1024)
    """torch threads per rank. Fixed by the input, not by the machine, as kernels may round differently with the number
    of threads; ranks, not threads, are how cores are used (measured: two ranks of one thread beat one of two)."""


def open_ranks() -> Ranks:
    """Open the ranks of this job: MPI's under a launcher, else this process alone.

    Raises InputError where more than one rank was launched but cannot be joined.
    """
    launched = launched_size()
    if launched == 1:
        return SerialRanks()
    from hpctrip.ranks.mpi import MpiRanks

    return MpiRanks(launched)


def with_transport(ranks: Ranks, transport: str) -> Ranks:
    """The same ranks over the transport that the input asks for ("auto" keeps what there is)."""
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

        return NcclRanks(ranks.size)
    from hpctrip.ranks.mpi import MpiRanks

    return MpiRanks(ranks.size)
