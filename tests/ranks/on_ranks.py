"""A program for mpirun (see `Launcher.commands`): the contract of every transport, then whole runs.

shared_on_ranks.py FOLDER COMMANDS: five ranks check the transports. COMMANDS is a JSON list of [name, words,
environment]: each is a command line of hpctrip. The output of all ranks is appended to FOLDER/<name>.out and .err. A
rank that comes to the end of a command, or of the checks (`transports`), writes its exit code to
FOLDER/<name>-<rank>.code.
"""

import contextlib
import json
import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

import hpctrip.api  # noqa: F401  every registry is there
from hpctrip.base.errors import InputError
from hpctrip.base.process import launched_rank, launched_size
from hpctrip.config import component
from hpctrip.ranks import node
from hpctrip.ranks.base import EndedByAggregator, Ranks, build_collectively

ROW = node.ROW_BYTES // 8
LENGTHS = [1, node.SPLIT_BYTES // 8 - 1, node.SPLIT_BYTES // 8, ROW, ROW + 1, 2 * ROW + 7]
"""One number; just too short to be split, just long enough; a whole row; two and three pieces."""
MACHINES = {
    "one": ([0, 0, 1, 2, 3], 5),
    "two": ([0, 0, 0, 1, 1], 3),
    "five": ([0, 0, 0, 0, 0], 1),
    "unshared": ([0, 0, 1, 2, 3], 1),
}
"""{machines of five ranks: (index of every rank among the hosts of its machine, ranks that share memory with rank 0)}.
Unshared: one machine, on which one rank cannot map the shared memory; every rank then counts as a machine of its own.
"""


def refuse():
    raise InputError("policy.k", "too large")


def check_collectives(ranks: Ranks) -> None:
    """Every collective returns what its contract says."""
    rank, size, hosts, is_first = ranks.rank, ranks.size, [*ranks.hosts], ranks.rank == 0
    assert ranks.is_aggregator == is_first and hosts == ([*range(1, size)] or [0])
    assert ranks.decide_on_root(lambda: [*range(50_000)]) == [
        *range(50_000)
    ]  # more than fits into the first part
    decided = ranks.decide_on_root(lambda: {"round": 1, "cohort": np.arange(3)})
    assert decided["round"] == 1 and decided["cohort"].tolist() == [0, 1, 2]
    refuse_at_the_last = refuse if rank == size - 1 else lambda: None
    for failing in (
        lambda: ranks.decide_on_root(refuse),
        lambda: build_collectively(ranks, refuse),
        lambda: build_collectively(ranks, refuse_at_the_last),
    ):
        with pytest.raises(InputError if is_first else EndedByAggregator) as ended:
            failing()
        assert str(ended.value) == ("policy.k: too large" if is_first else "") and ended.value.exit_code == 2
    gathered = ranks.gather(rank * rank)
    assert gathered == ([r * r for r in range(size)] if is_first else None)
    # three parameters and a tail of two; the aggregator among others has nothing to add
    partial = torch.tensor([rank, 2**40, -rank, 1, 10 * rank]) * (rank in hosts)

    def step(total: torch.Tensor) -> torch.Tensor:
        assert total.data_ptr() == partial.data_ptr()  # no second vector of that length
        return total[:3].to(torch.float32) / 2

    params, tail = ranks.combine(partial, 3, step)
    number, ranks_sum = len(hosts), sum(hosts)
    assert (
        params.tolist() == [ranks_sum / 2, number * 2.0**39, -ranks_sum / 2] and params.dtype == torch.float32
    )
    assert tail.tolist() == [number, 10 * ranks_sum] if is_first else tail is None
    assert ranks.largest(np.array([rank, -rank])).tolist() == [size - 1, 0]
    total = ranks.total(np.array([1, rank], dtype=np.int64))
    assert total.tolist() == [size, ranks_sum] if is_first else total is None
    # a row for every host, whose key is twice its rank, brought to rank 0 and sent to the next host
    rows = ranks.gather_rows({2 * rank: torch.full((3,), rank + 0.5)} if rank in hosts else {})
    assert rows is None or {k: row.tolist() for k, row in rows.items()} == {
        2 * h: [h + 0.5] * 3 for h in hosts
    }
    assert (rows is not None) == is_first
    destinations = np.zeros(2 * size, dtype=np.int64)
    destinations[2 * np.array(hosts)] = np.roll(hosts, -1)
    scattered = ranks.scatter_rows(rows, destinations)
    expected = {2 * h: [h + 0.5] * 3 for h in hosts if destinations[2 * h] == rank and rank in hosts}
    assert {key: row.tolist() for key, row in scattered.items()} == expected


def check_sum(ranks, length: int) -> None:
    """The sum of random vectors is that of MPI, at rank 0 only, and no rank's own vector is changed."""
    mine = np.random.default_rng(ranks.rank).integers(-(2**50), 2**50, length)
    before, expected = mine.copy(), ranks.comm.reduce(mine)
    total = ranks.total(mine)
    assert np.array_equal(total, expected) if ranks.rank == 0 else total is None
    assert np.array_equal(mine, before)


def check_broadcast(ranks, num_bytes: int) -> None:
    """Every rank gets the bytes of rank 0."""
    expected = np.random.default_rng(num_bytes).integers(0, 256, num_bytes, dtype=np.uint8)
    data = expected.copy() if ranks.rank == 0 else np.zeros_like(expected)
    ranks._broadcast(data)
    assert np.array_equal(data, expected)


def check_any_order(ranks, rounds: int) -> None:
    """Every rank sees the value of each turn, for sums and broadcasts in a random order, some ranks late."""
    order, mine = np.random.default_rng(0), np.random.default_rng(1 + ranks.rank)
    for turn in range(rounds):
        if mine.random() < 0.05:
            os.sched_yield() if mine.random() < 0.5 else ranks.comm.Iprobe()
        if order.random() < 0.5:
            total = ranks.total(np.array([turn, ranks.rank]))
            assert total is None or total.tolist() == [turn * ranks.size, sum(range(ranks.size))]
        else:
            data = np.array([float(turn) if ranks.rank == 0 else -1.0])
            ranks._broadcast(data)
            assert data[0] == turn


def check_transports() -> None:
    """Every transport keeps the contract on any number of machines, and where memory cannot be shared."""
    from hpctrip.ranks import mpi
    from hpctrip.ranks.nccl import NcclRanks

    opened = node._open
    for name, (local_hosts, size) in MACHINES.items():
        on_machine = {"two": lambda rank: rank % 2, "five": lambda rank: rank}.get(name, lambda rank: 0)
        mpi.machine_of = lambda comm, on=on_machine: comm.Split(on(comm.rank), comm.rank)
        is_apart = name == "unshared" and mpi.MPI.COMM_WORLD.rank == 2
        node._open = (lambda *address: []) if is_apart else opened
        for transport in (mpi.MpiRanks, NcclRanks):
            with transport() as ranks:
                assert ranks.local_host == local_hosts[ranks.rank]
                assert ranks.rank > 0 or ranks._node.size == size
                check_collectives(ranks)
                if transport is mpi.MpiRanks:
                    for length in LENGTHS:
                        check_sum(ranks, length)
                    for more in (-1, 0, 1):
                        check_broadcast(ranks, node.ROW_BYTES + more)
                    check_any_order(ranks, 400)


def run_command(stem: str, words: list[str], env: dict[str, str]) -> None:
    """Run a command line of hpctrip as a process of its own would."""
    from hpctrip.cli import main

    for stream, suffix in ((sys.stdout, "out"), (sys.stderr, "err")):
        stream.flush()
        with open(f"{stem}.{suffix}", "a") as file:
            os.dup2(file.fileno(), stream.fileno())
    with contextlib.ExitStack() as until_over:
        until_over.enter_context(mock.patch.dict(os.environ, env))
        until_over.enter_context(mock.patch("sys.argv", ["hpctrip", *words]))
        for registry in component._registries:  # what a plug-in registers is forgotten
            until_over.enter_context(mock.patch.dict(registry))
        for module in (
            (torch.cuda, torch.distributed) if env else ()
        ):  # plug-ins with an environment change them
            until_over.enter_context(mock.patch.dict(vars(module)))
        code = main.run_command()
    Path(f"{stem}-{launched_rank()}.code").write_text(str(code))


def main() -> None:
    folder, commands = sys.argv[1:]
    if launched_size() == 5:
        check_transports()
        Path(folder, f"transports-{launched_rank()}.code").write_text("0")
    for name, words, env in json.loads(commands):
        run_command(f"{folder}/{name}", words, env)
