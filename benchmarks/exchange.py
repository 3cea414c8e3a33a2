"""What exchange and bookkeeping cost a round, against the same bytes in bare MPI calls; and what waiting costs.

    mpirun -n 41 python benchmarks/exchange.py [--rounds 40] [--turns 5]

The rounds are those of the program (decision, plan, exchange, server step, clock, row, results file) on a tiny linear
model with an engine that trains nothing, one site a host, unevaluated. The bare calls are the same collectives: a
broadcast of the plan, a reduction of the int64 vector, a broadcast of the float32 model, a reduction of the
counters. Where ranks outnumber cores, MPI's own way of waiting (spinning) costs more than the bytes, so the calls are
also measured with the program's way. The contenders take turns.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from hpctrip.app.config import resolve
from hpctrip.app.experiment import Run, State
from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.engines.base import SiteUpdate, SiteWork
from hpctrip.learn.workloads.base import WORKLOADS, Dataset, Task, Workload
from hpctrip.ranks.mpi import MpiRanks, _wait
from hpctrip.record.writer import Recorder

LIMIT = 1.2


@WORKLOADS.add
class Tiny(Workload):
    """A linear model on blank images (synthetic)."""

    kind: ClassVar[str] = "tiny"
    lr: ClassVar[float] = 0.1
    batch_size: ClassVar[int] = 1
    local_epochs: ClassVar[int] = 1
    num_samples: int

    def task(self, seed: int) -> Task:
        """One sample a site."""
        data = Dataset(np.zeros((self.num_samples, 28, 28), np.uint8), np.zeros(self.num_samples, np.int64))
        return Task(data, data, 10, _linear, torch.Tensor.float, F.cross_entropy, "blank", synthetic=True)


def _linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


class NoTraining:
    """An engine whose sites do nothing, at once."""

    name = "loop"

    def train(self, params: torch.Tensor, sites: list[SiteWork]) -> Iterator[SiteUpdate]:
        """Zero updates."""
        for site in sites:
            yield SiteUpdate(site.site, torch.zeros_like(params), 0.0, 0.0)


def program(ranks: MpiRanks, rounds: int, folder: str) -> tuple[Callable[[], None], int, int]:
    """The program's rounds as one call; then the number of parameters and the bytes of a plan."""
    hosts = len(ranks.hosts)
    tables = {
        "sites": {"num_sites": hosts},
        "workload": {"kind": "tiny", "num_samples": hosts},
        "partition": {"kind": "iid"},
        "policy": {"kind": "all"},
        "evaluate": {"every_rounds": rounds + 1},
        "stop": {"max_rounds": rounds + 1},
    }
    experiment = resolve(tables).experiment
    run = Run(experiment, experiment.workload.task(0), ranks, torch.device("cpu"))
    run.engine = NoTraining()
    plan = pickle.dumps((0, ranks.lead(lambda: run.plan(State()))))

    def rounds_of_the_program() -> None:
        sites = {"site": (np.arange(hosts), "1", "site index")}
        recorder = Recorder(Path(folder) / "run.h5", {"target_accuracy": 0.5}, sites)
        state, params = State(), run.initial_params
        for _ in range(rounds):  # the steps of app.loop
            plan, before = ranks.lead(partial(run.plan, state)), params
            hosted = run.train_hosted(before, plan)
            with run.wall.phase("exchange"):
                params, tail = ranks.combine(hosted.vector, len(before), partial(run.step, before, plan))
            counts = ranks.total(run.evaluate_hosted(params, plan))
            if ranks.is_aggregator:
                state = run.advance(state, plan, params - before, tail, counts)
                recorder.record(state.history)

    return rounds_of_the_program, len(run.initial_params), len(plan)


def bare(comm: MPI.Comm, rounds: int, num_params: int, plan_bytes: int, sleeping: bool) -> Callable[[], None]:
    """The same collectives over the same bytes, and nothing else: blocking, or waited for as the program does."""
    plan = np.zeros(plan_bytes, np.uint8)
    vector, counts = np.zeros(num_params + 3 * comm.size, np.int64), np.zeros(3 + comm.size, np.int64)
    total, seen, params = np.empty_like(vector), np.empty_like(counts), np.zeros(num_params, np.float32)
    done = _wait if sleeping else MPI.Request.Wait

    def calls() -> None:
        for _ in range(rounds):
            done(comm.Ibcast(plan))
            done(comm.Ireduce(vector, total))
            done(comm.Ibcast(params))
            done(comm.Ireduce(counts, seen))

    return calls


def seconds(comm: MPI.Comm, call: Callable[[], None]) -> float:
    """Wall time from when all are ready until rank 0 is through, at rank 0."""
    comm.Barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def reductions(comm: MPI.Comm, num_params: int = 1_690_046, repeats: int = 5) -> dict[str, float]:
    """Milliseconds to sum one vector a rank: fixed point against plain floats, summing up at the site included."""
    delta = torch.zeros(num_params)
    result = {}
    for name in ("int64", "float64", "float32"):
        times = []
        for _ in range(repeats):
            comm.Barrier()
            began = time.perf_counter()
            if name == "int64":
                partial = PartialSum(num_params, 0, torch.device("cpu"))
                partial.add(delta, 0.5)
                mine = partial.vector.numpy()
            else:
                mine = torch.zeros(num_params, dtype=getattr(torch, name)).add_(delta, alpha=0.5).numpy()
            comm.Reduce(mine, np.empty_like(mine) if comm.rank == 0 else None)
            times.append(1e3 * (time.perf_counter() - began))
        result[name] = statistics.median(times)
    return result


def waiting(ranks: MpiRanks, wait_s: float = 2.0) -> float:
    """CPU seconds that rank 0 takes a second while it waits for the hosts."""
    ranks.comm.Barrier()
    if ranks.rank in ranks.hosts:
        time.sleep(wait_s)
    began = time.process_time()
    ranks.total(np.zeros(1, np.int64))
    return (time.process_time() - began) / wait_s


def main() -> None:
    """Measure and print at rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ranks = MpiRanks()
    comm = ranks.comm
    with tempfile.TemporaryDirectory() as folder:
        ours, num_params, plan_bytes = program(ranks, arguments.rounds, folder)
        size = arguments.rounds, num_params, comm.bcast(plan_bytes)
        contenders = {"ours": ours, "blocking": bare(comm, *size, False), "sleeping": bare(comm, *size, True)}
        times = [[seconds(comm, call) for call in contenders.values()] for _ in range(arguments.turns)]
    by_kind, share = reductions(comm), waiting(ranks)
    if not ranks.is_aggregator:
        return
    medians = [1e3 * statistics.median(column) / arguments.rounds for column in zip(*times, strict=True)]
    ours_ms, blocking_ms, sleeping_ms = medians
    ratio = ours_ms / min(blocking_ms, sleeping_ms)
    print(f"{ranks.size} ranks, {ranks.library}, {num_params:,} parameters, plan of {plan_bytes:,} bytes")
    print(f"a round of the program, nothing trained  {ours_ms:9.3f} ms")
    print(f"bare MPI calls, waiting as MPI does      {blocking_ms:9.3f} ms")
    print(f"bare MPI calls, waiting asleep           {sleeping_ms:9.3f} ms")
    print(
        f"ratio to the faster of the two           {ratio:9.2f}    limit {LIMIT}: {'' if ratio < LIMIT else 'NOT '}met"
    )
    print(
        "summing 1.69 M parameters over the ranks: "
        + ", ".join(f"{k} {v:.1f} ms" for k, v in by_kind.items())
    )
    print(f"rank 0 takes {share:.1%} of a core while it waits for the hosts")


if __name__ == "__main__":
    main()
