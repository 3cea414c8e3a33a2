"""Processes of jobs, from /proc."""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path


def processes_of(pid: int) -> list[int]:
    """A process and all below it, the eldest first. MPI's launchers put ranks into sessions of their own, so a process
    group does not hold them."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for above in found:  # grows while it is walked
        found += [child for child, parent in parents.items() if parent == above]
    return found


def ranks_of(pids: Iterable[int]) -> dict[int, int]:
    """{rank: its process}. The launcher numbers its processes in their environment, and one that has taken the place of
    a launched one has its rank in its name."""
    launched, successors = {}, {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            name, _, rank = Path(f"/proc/{pid}/comm").read_text().strip().partition(" ")
            if name == "hpctrip" and rank:
                successors[int(rank)] = pid
            for line in Path(f"/proc/{pid}/environ").read_text().split("\0"):
                name, _, rank = line.partition("=")
                if name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK"):
                    launched.setdefault(int(rank), pid)
    return launched | successors


def processes_with(mark):
    """Ids of the processes whose environment holds the mark."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:  # it has ended, or is another user's
            pass
    return pids


def check_nothing_runs(mark):
    """All processes with the mark in their environment end."""
    deadline = time.monotonic() + 30
    while left := processes_with(mark):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
