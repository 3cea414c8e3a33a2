"""A program for mpirun (see test_ranks.py): the same collectives over every transport, then whole runs.

on_ranks.py FOLDER [RUN ...]: rank r writes what it saw to FOLDER/<transport>-<r>.json; each RUN is one command line.
"""

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import torch

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import EndedByAggregator, Ranks, build_collectively
from hpctrip.ranks.open import open_ranks, with_transport


def refuse():
    raise InputError("policy.k", "too large")


def seen(ranks: Ranks) -> dict:
    """Results of every collective at one rank."""
    rank = ranks.rank
    long = ranks.decide_on_root(lambda: list(range(50_000)))  # more than fits into the first part
    told = ranks.decide_on_root(lambda: {"round": 1, "cohort": np.arange(3)})
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
    # a row for every host, whose key is twice its rank, brought to rank 0 and given to the next host
    gathered = ranks.gather_rows({2 * rank: torch.full((3,), rank + 0.5)} if hosts_sites else {})
    destinations = np.zeros(2 * ranks.size, dtype=np.int64)
    destinations[2 * np.array(ranks.hosts)] = np.roll(ranks.hosts, -1)
    given = ranks.scatter_rows(gathered, destinations)
    return {
        "library": ranks.library,
        "is_aggregator": ranks.is_aggregator,
        "hosts": list(ranks.hosts),
        "local_host": ranks.local_host,
        "long": [len(long), sum(long)],
        "told": [told["round"], *map(int, told["cohort"])],
        "errors": errors,
        "gathered": ranks.gather(rank * rank),
        "params": params.tolist(),
        "dtype": str(params.dtype),
        "tail": None if tail is None else tail.tolist(),
        "rows": None if gathered is None else {key: row.tolist() for key, row in gathered.items()},
        "given": {key: row.tolist() for key, row in given.items()},
        "total": None if total is None else total.tolist(),
    }


def main() -> None:
    folder, *runs = sys.argv[1:]
    with open_ranks() as ranks:
        for transport in ("mpi", "nccl") if ranks.size > 1 else ("serial",):
            with with_transport(ranks, transport) as chosen:
                Path(folder, f"{transport}-{chosen.rank}.json").write_text(json.dumps(seen(chosen)))
    from hpctrip.cli.main import cli

    for run in runs:
        cli(shlex.split(run), standalone_mode=False)


if __name__ == "__main__":
    main()
