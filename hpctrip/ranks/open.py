"""Which ranks there are, and over which transport they talk. MPI is imported only where it is used."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field

from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.identity import Neutral
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.serial import SerialRanks


class RanksInput(Component):
    """Where it runs. Only `threads` can change a result, in the last bits."""

    transport: Neutral[Literal["auto", "serial", "mpi", "nccl"]] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: Neutral[Literal["auto", "cpu", "cuda"]] = "auto"
    """auto: the node's GPUs where there are any."""
    threads: int = Field(1, ge=1, le=1024)
    """torch threads per rank. Fixed by the input, not by the machine, as kernels may round differently with the number
    of threads; ranks, not threads, are how cores are used (measured: two ranks of one thread beat one of two)."""


def launched_size() -> int:
    """Number of ranks that a launcher says it started (1: none did). Read before MPI is imported."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        if name in os.environ:
            return int(os.environ[name])
    # srun tells every task the size of its step; the batch script itself, although it has a SLURM_PROCID, none
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return int(os.environ["SLURM_STEP_NUM_TASKS"])
    return 1


def launched_rank() -> int:
    """This process's rank as the launcher says it (0: no launcher). Read before MPI is imported."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def open_ranks() -> Ranks:
    """The ranks that this process is one of: MPI's under a launcher, else itself alone.

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
