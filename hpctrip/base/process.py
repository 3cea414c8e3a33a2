"""Facts about processes: which rank this one is, by the launcher's environment variables, and the states of those of
this machine, from /proc/PID/stat (Linux, proc(5)) where that is known."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from contextlib import suppress
from types import FrameType

from hpctrip.base.errors import InputError

ends_with_run = False
"""Whether this process ends with the run that it makes, as the command line does: set by its main function."""
started: float | None = None
"""When the process started whose place this one has taken, in seconds since 1970; None: it has taken no place."""
STOPPING = signal.SIGTERM, signal.SIGUSR2
"""Signals by which a run leaves, unless its input names others. Ctrl-C ends one that still starts at once."""
_kept: set[int] | None = None
"""Those of them that have come since `keep_signals`; None: they are not kept."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE_BYTES = 65_536
_LARGEST_BYTES = 2**25
"""The largest threshold that glibc takes."""
_SPARE_BYTES = 2**28


def is_stopped(process: int) -> bool:
    """Whether a process is stopped, by a signal or a debugger; False where that is not known."""
    return _stat(process)[:1] in (["t"], ["T"])


def has_terminal(process: int) -> bool:
    """Whether a process has a controlling terminal; False where that is not known."""
    return _stat(process)[4:5] not in ([], ["0"])


def start_time() -> float:
    """When this process started, in seconds since 1970; where that is not known, now."""
    if started is not None:
        return started
    ticks = _stat(os.getpid())[19:20]
    if not ticks:
        return time.time()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks[0]) / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s


def _stat(process: int) -> list[str]:
    """The fields after the name of the process, from its state (field 3) on; empty where they are not known."""
    with suppress(OSError), open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


def keep_signals() -> None:
    """From now on the signals `STOPPING` do not end this process, in which a run starts, but are kept for
    `kept_signals`. Those that are ignored stay so."""
    global _kept
    _kept = set()
    for number in STOPPING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _keep)
            signal.siginterrupt(number, False)  # what the run loads need not expect it


def kept_signals() -> set[int]:
    """The signals that came since `keep_signals`. From now on they end this process again."""
    global _kept
    came, _kept = _kept or set(), None
    return came


def _keep(number: int, frame: FrameType | None) -> None:
    if _kept is not None:
        _kept.add(number)
        return
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


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


def set_up_malloc(trains: bool) -> None:
    """Tell glibc's malloc how to allocate large blocks. No effect with other C libraries.

    A rank that trains sites takes them from the heap and keeps them: activations come and go in every step, and mapping
    new memory for each took 4 % of a round. An aggregator that trains none maps each, so that freed blocks return to
    the system: rows of the history in between prevent the heap from shrinking, and rank 0 grew by 0.4 to 0.9 MB a round
    with a model of 0.8 MB.
    """
    with suppress(OSError, AttributeError):  # no C library by that name, or one without mallopt
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES if trains else _LARGE_BYTES)
        if trains:
            libc.mallopt(_M_TRIM_THRESHOLD, _SPARE_BYTES)


LOG = logging.getLogger("hpctrip")
"""Gets all lines of a run's progress, also of one that prints nothing: programs that call the library may show them."""
LOG.addHandler(logging.NullHandler())


def log(line: str) -> None:
    """Log a line of progress: a warning as such, all others at level INFO."""
    LOG.log(logging.WARNING if line.startswith("warning: ") else logging.INFO, "%s", line)
