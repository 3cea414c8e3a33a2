"""A program for mpirun (see test_node.py): collectives among the ranks of one machine.

on_node.py FOLDER: rank r writes whether what it saw was right, to FOLDER/node-<r>.json.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from mpi4py import MPI

from hpctrip.ranks import node
from hpctrip.ranks.mpi import MpiRanks

ROW = node.ROW_BYTES // 8
LENGTHS = [1, node.SPLIT_BYTES // 8 - 1, node.SPLIT_BYTES // 8, ROW, ROW + 1, 2 * ROW + 7]
"""One number; just too short to be split, just long enough; a whole row; two and three pieces."""


def sums(ranks: node.Node, comm: MPI.Comm, length: int) -> bool:
    """Is a sum of random vectors that of MPI, at the first rank only, and nobody's own vector changed?"""
    mine = np.random.default_rng(ranks.rank).integers(-(2**50), 2**50, length)
    before, expected = mine.copy(), comm.reduce(mine)
    total = ranks.sum(mine)
    same = total is None if comm.rank else np.array_equal(total, expected)
    return bool(same and np.array_equal(mine, before))


def tells(ranks: node.Node, num_bytes: int) -> bool:
    """Does everyone get the first rank's bytes?"""
    expected = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8)
    data = expected.copy() if ranks.rank == 0 else np.zeros_like(expected)
    ranks.broadcast(data)
    return np.array_equal(data, expected)


def in_any_order(ranks: node.Node, comm: MPI.Comm, rounds: int) -> bool:
    """Sums and broadcasts in a random order, some ranks late: does everyone see the value of that turn?"""
    order, mine = np.random.default_rng(0), np.random.default_rng(1 + ranks.rank)
    for turn in range(rounds):
        if mine.random() < 0.05:
            os.sched_yield() if mine.random() < 0.5 else comm.Iprobe()
        if order.random() < 0.5:
            total = ranks.sum(np.array([turn, ranks.rank]))
            if total is not None and total.tolist() != [turn * ranks.size, sum(range(ranks.size))]:
                return False
        else:
            data = np.array([float(turn) if ranks.rank == 0 else -1.0])
            ranks.broadcast(data)
            if data[0] != turn:
                return False
    return True


def left_over() -> list[str]:
    """Shared files of this process that still have a name."""
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    ours = [link for link in links if "hpctrip-" in link]
    assert len(ours) == 5, ours  # the memory and four pipes
    return [link for link in ours if not link.endswith(" (deleted)")]


def without_memory(comm: MPI.Comm, failing: int) -> dict:
    """One rank cannot map the memory: every rank then counts as a machine of its own, and the sums are right."""
    folder = node._MEMORY
    node._MEMORY = "elsewhere" if comm.rank == failing else folder
    ranks = MpiRanks()
    node._MEMORY = folder
    total = ranks.total(np.array([1, comm.rank]))
    data = np.array([7 if comm.rank == 0 else 0])
    ranks._broadcast(data)
    return {
        "size": ranks._node.size,
        "total": None if total is None else total.tolist(),
        "data": data.tolist(),
        "local_host": ranks.local_host,
    }


def main() -> None:
    comm = MPI.COMM_WORLD
    ranks = node.Node(comm)
    seen = {
        "sums": {length: sums(ranks, comm, length) for length in LENGTHS},
        "tells": {n: tells(ranks, n) for n in (1, node.ROW_BYTES, node.ROW_BYTES + 1)},
        "any order": in_any_order(ranks, comm, 400),
        "left over": left_over(),
        "not for the third": without_memory(comm, 2),
    }
    Path(sys.argv[1], f"node-{comm.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
