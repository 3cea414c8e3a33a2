"""A program for mpirun (see test_ranks.py): collectives over every transport, then whole runs.

on_ranks.py FOLDER COMMAND...: five ranks write what they saw to FOLDER/<transport>-<machines>-<rank>.json; then each
COMMAND is a command line.
"""

import json
import os
import shlex
import sys
from pathlib import Path

import numpy as np
import torch

from hpctrip.base.errors import InputError
from hpctrip.ranks import node
from hpctrip.ranks.base import EndedByAggregator, Ranks, build_collectively

ROW = node.ROW_BYTES // 8
LENGTHS = [1, node.SPLIT_BYTES // 8 - 1, node.SPLIT_BYTES // 8, ROW, ROW + 1, 2 * ROW + 7]
"""One number; just too short to be split, just long enough; a whole row; two and three pieces."""


def refuse():
    raise InputError("policy.k", "too large")


def collectives(ranks: Ranks) -> dict:
    """Results of every collective at one rank."""
    rank = ranks.rank
    long = ranks.decide_on_root(lambda: list(range(50_000)))  # more than fits into the first part
    decided = ranks.decide_on_root(lambda: {"round": 1, "cohort": np.arange(3)})
    errors = []
    refuse_at_the_last = refuse if rank == ranks.size - 1 else lambda: None
    for failing in (
        lambda: ranks.decide_on_root(refuse),
        lambda: build_collectively(ranks, refuse),
        lambda: build_collectively(ranks, refuse_at_the_last),
    ):
        try:
            failing()
        except InputError as error:
            errors.append(str(error))
        except EndedByAggregator as error:
            errors.append(error.exit_code)
    # three parameters and a tail of two; the aggregator among others has nothing to add
    hosts_sites = rank in ranks.hosts
    partial = torch.tensor([rank, 2**40, -rank, 1, 10 * rank]) * hosts_sites
    params, tail = ranks.combine(partial, 3, lambda total: total[:3].to(torch.float32) / 2)
    total = ranks.total(np.array([1, rank], dtype=np.int64))
    # a row for every host, whose key is twice its rank, brought to rank 0 and sent to the next host
    gathered = ranks.gather_rows({2 * rank: torch.full((3,), rank + 0.5)} if hosts_sites else {})
    destinations = np.zeros(2 * ranks.size, dtype=np.int64)
    destinations[2 * np.array(ranks.hosts)] = np.roll(ranks.hosts, -1)
    scattered = ranks.scatter_rows(gathered, destinations)
    return {
        "is_aggregator": ranks.is_aggregator,
        "hosts": list(ranks.hosts),
        "local_host": ranks.local_host,
        "long": [len(long), sum(long)],
        "decided": [decided["round"], *map(int, decided["cohort"])],
        "errors": errors,
        "gathered": ranks.gather(rank * rank),
        "params": params.tolist(),
        "dtype": str(params.dtype),
        "tail": None if tail is None else tail.tolist(),
        "rows": None if gathered is None else {key: row.tolist() for key, row in gathered.items()},
        "scattered": {key: row.tolist() for key, row in scattered.items()},
        "total": None if total is None else total.tolist(),
    }


def sums(ranks, length: int) -> bool:
    """Whether the sum of random vectors is that of MPI, at rank 0 only, and no rank's own vector is changed."""
    mine = np.random.default_rng(ranks.rank).integers(-(2**50), 2**50, length)
    before, expected = mine.copy(), ranks.comm.reduce(mine)
    total = ranks.total(mine)
    same = total is None if ranks.rank else np.array_equal(total, expected)
    return bool(same and np.array_equal(mine, before))


def broadcasts(ranks, num_bytes: int) -> bool:
    """Whether every rank gets the bytes of rank 0."""
    expected = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8)
    data = expected.copy() if ranks.rank == 0 else np.zeros_like(expected)
    ranks._broadcast(data)
    return np.array_equal(data, expected)


def in_any_order(ranks, rounds: int) -> bool:
    """Whether every rank sees the value of each turn, for sums and broadcasts in a random order, some ranks late."""
    order, mine = np.random.default_rng(0), np.random.default_rng(1 + ranks.rank)
    for turn in range(rounds):
        if mine.random() < 0.05:
            os.sched_yield() if mine.random() < 0.5 else ranks.comm.Iprobe()
        if order.random() < 0.5:
            total = ranks.total(np.array([turn, ranks.rank]))
            if total is not None and total.tolist() != [turn * ranks.size, sum(range(ranks.size))]:
                return False
        else:
            data = np.array([float(turn) if ranks.rank == 0 else -1.0])
            ranks._broadcast(data)
            if data[0] != turn:
                return False
    return True


def machines(name: str, comm):
    """The ranks of this rank's machine where five ranks are on one machine, two or five."""
    return comm.Split({"one": 0, "two": comm.rank % 2, "five": comm.rank}[name], comm.rank)


def check_transports(folder: str) -> None:
    """Write what this rank sees of every transport on any number of machines, and where memory cannot be shared."""
    from hpctrip.ranks import mpi
    from hpctrip.ranks.nccl import NcclRanks

    opened = node._open
    for name in ("one", "two", "five", "unshared"):
        mpi.machine_of = lambda comm, name=name: machines("one" if name == "unshared" else name, comm)
        is_apart = name == "unshared" and mpi.MPI.COMM_WORLD.rank == 2
        node._open = (lambda *address: []) if is_apart else opened
        for transport in (mpi.MpiRanks, NcclRanks):
            with transport() as ranks:
                seen = collectives(ranks) | {"node": ranks._node.size}
                if transport is mpi.MpiRanks:
                    seen["sums"] = [sums(ranks, length) for length in LENGTHS]
                    seen["broadcasts"] = [broadcasts(ranks, node.ROW_BYTES + more) for more in (-1, 0, 1)]
                    seen["in any order"] = in_any_order(ranks, 400)
            Path(folder, f"{ranks.name}-{name}-{ranks.rank}.json").write_text(json.dumps(seen))


def main() -> None:
    from hpctrip.cli.main import cli
    from hpctrip.ranks.launched import launched_size

    folder, *commands = sys.argv[1:]
    if launched_size() == 5:
        check_transports(folder)
    for command in commands:
        cli(shlex.split(command), standalone_mode=False)


if __name__ == "__main__":
    main()
