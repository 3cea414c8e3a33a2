"""The ranks that the launcher started: rank and number by its environment variables."""

from __future__ import annotations

import os

from hpctrip.base.errors import InputError
from hpctrip.base.process import has_terminal


def launched_size() -> int:
    """Number of ranks that the launcher started; 1 without a launcher. Raises InputError for a malformed variable."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"):
        if name in os.environ:
            return _number(name)
    # srun tells every task the size of its step; the batch script itself, although it has a SLURM_PROCID, none
    if "SLURM_PROCID" in os.environ and "SLURM_STEP_NUM_TASKS" in os.environ and not _in_a_shell_of_srun():
        return _number("SLURM_STEP_NUM_TASKS")
    return 1


def launched_rank() -> int:
    """Rank of this process; 0 without a launcher. Raises InputError for a malformed variable."""
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"):
        if name in os.environ:
            return _number(name)
    return 0


def refuse_launcher(what: str, hint: str) -> None:
    """Raise InputError where a launcher started several ranks."""
    if launched_size() > 1:
        raise InputError(what, f"was started {launched_size()} times by a launcher", hint)


def _in_a_shell_of_srun() -> bool:
    """Whether this process was started in a shell of `srun --pty`, which inherits the variables of srun's task. The
    task is then the shell: another process, and one with a terminal, which the tasks of a program do not have."""
    task = os.environ.get("SLURM_TASK_PID", "")
    return task.isdecimal() and len(task) < 10 and int(task) != os.getpid() and has_terminal(int(task))


def _number(name: str) -> int:
    """The environment variable `name` as an integer. Raises InputError where it is none."""
    value = os.environ[name]
    if not (value.isascii() and value.isdecimal() and len(value) < 10):
        raise InputError(
            f"{name}={value}", "is not a number of ranks", "unset it, or start hpctrip by a launcher"
        )
    return int(value)
