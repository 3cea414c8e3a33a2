"""Rank and number of ranks as the launcher's environment names them, before anything large is imported."""

from __future__ import annotations

import os

from hpctrip.base.errors import InputError


def launched_size() -> int:
    """Number of ranks that a launcher says it started (1: none did)."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        if name in os.environ:
            return _number(name)
    # srun tells every task the size of its step; the batch script itself, although it has a SLURM_PROCID, none
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ:
        return _number("SLURM_STEP_NUM_TASKS")
    return 1


def launched_rank() -> int:
    """This process's rank as the launcher says it (0: no launcher)."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return _number(name)
    return 0


def _number(name: str) -> int:
    """A variable of the environment that counts ranks. Raises InputError where it does not."""
    value = os.environ[name]
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise InputError(
            f"{name}={value}", "is no number of ranks", "unset it, or start hpctrip by a launcher"
        )
    return int(value)
