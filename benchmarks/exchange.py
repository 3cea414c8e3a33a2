"""What exchange and bookkeeping cost a round, against the same bytes in bare MPI calls; and what waiting costs.

    mpirun -n 41 python benchmarks/exchange.py [--rounds 40] [--turns 7]

The rounds are those of the program (decision, plan, exchange, server step, clock, row, results file) on a tiny linear
model with an engine that trains nothing, one site a host, unevaluated. The bare calls are the same collectives: a
broadcast of the plan, a reduction of the int64 vector, a broadcast of the float32 model, a reduction of the
counters; and the same again through the program's transport, so that exchange and bookkeeping can be told apart. The
contenders take turns.

With 41 ranks on two cores the program's round is to take at most 1.2 times as long as the bare calls.
"""

from __future__ import annotations

import argparse
import functools
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from mpi4py import MPI
from torch import nn

from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.counters import EVALUATION, vector_size
from hpctrip.learn.engines.base import SiteUpdate
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload
from hpctrip.ranks.mpi import MpiRanks
from hpctrip.record.checkpoint import Checkpointer, Checkpointing
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.callbacks import RunFacts
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.experiment import resolve
from hpctrip.runner.host import Host
from hpctrip.runner.loop import Results, train
from hpctrip.runner.signals import Interrupt, Interruption, Signals
from hpctrip.sim.step import State

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

    name = "sequential"

    def train(
        self, params: torch.Tensor, visits: list[list[np.ndarray]], optimizers: None = None, *_: object
    ) -> Iterator[SiteUpdate]:
        """Zero updates."""
        for _ in visits:
            yield SiteUpdate(torch.zeros_like(params), *[0.0] * 5)


class Silent:
    """Progress that tells nobody."""

    def round(self, state: State) -> None:
        """Nothing."""


def program(ranks: MpiRanks, rounds: int, folder: str) -> tuple[Callable[[], None], int, int]:
    """The program's main loop as one call; then the number of parameters and the bytes of what rank 0 tells all."""
    hosts = len(ranks.hosts)
    tables = {
        "sites": {"num_sites": hosts},
        "workload": {"kind": "tiny", "num_samples": hosts},
        "partition": {"kind": "iid"},
        "policy": {"kind": "all"},
        "evaluate": {"every_rounds": rounds + 1},
        "stop": {"max_rounds": rounds},
    }
    experiment = resolve(tables).experiment
    host = Host(experiment, hosts, experiment.workload.task(0), ranks, torch.device("cpu"))
    host.engine = NoTraining()
    path = Path(folder) / "run.h5"

    def results() -> Results:
        sites = {"site": (np.arange(hosts), "1", "site index")}
        recorder = Recorder(path, {"target_accuracy": 0.5}, sites)
        checkpointer = Checkpointer(Checkpointing(enabled=False), path, "", {})
        interruption = Interruption(Interrupt(), path, ["here"] * ranks.size, Signals())
        facts = RunFacts(experiment.name, path, "", {}, ())
        callbacks = Callbacks({}, facts, print)
        return Results(Aggregator(host), recorder, checkpointer, interruption, Silent(), callbacks, None)

    def rounds_of_the_program() -> None:
        train(host, State(), host.initial_params, results() if ranks.is_aggregator else None, Signals())

    decision = ranks.decide_on_root(lambda: (Aggregator(host).begin(State())[1], False))
    return rounds_of_the_program, len(host.initial_params), len(pickle.dumps((0, decision)))


def bare(comm: MPI.Comm, rounds: int, num_params: int, plan_bytes: int) -> Callable[[], None]:
    """The same collectives over the same bytes in MPI calls, and nothing else."""
    plan = np.zeros(plan_bytes, np.uint8)
    vector, counts = (
        np.zeros(num_params + 4 * comm.size, np.int64),
        np.zeros(vector_size(EVALUATION, 0, comm.size), np.int64),
    )
    total, seen, params = np.empty_like(vector), np.empty_like(counts), np.zeros(num_params, np.float32)

    def calls() -> None:
        for _ in range(rounds):
            comm.Bcast(plan)
            comm.Reduce(vector, total)
            comm.Bcast(params)
            comm.Reduce(counts, seen)

    return calls


def transport(ranks: MpiRanks, rounds: int, num_params: int, plan_bytes: int) -> Callable[[], None]:
    """The same bytes as the program's transport carries them, and nothing else."""
    plan = bytes(plan_bytes)
    vector = torch.zeros(num_params + 4 * ranks.size, dtype=torch.int64)
    counts, params = np.zeros(3 + 2 * ranks.size, np.int64), torch.zeros(num_params)

    def calls() -> None:
        for _ in range(rounds):
            ranks.decide_on_root(lambda: plan)
            ranks.combine(vector, num_params, lambda total: params)
            ranks.total(counts)

    return calls


def seconds(comm: MPI.Comm, call: Callable[[], None]) -> float:
    """Wall time from when all are ready until rank 0 is through, at rank 0."""
    comm.Barrier()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def reductions(ranks: MpiRanks, repeats: int, num_params: int = 1_690_046) -> dict[str, float]:
    """Milliseconds to add one update to a rank's sum and to sum these over the ranks, as the program does it (int64,
    order-free) and by MPI in one call with plain numbers."""
    delta = torch.zeros(num_params)
    partial = PartialSum(num_params, 0, torch.device("cpu"))
    plain = {
        name: torch.zeros(num_params, dtype=getattr(torch, name)) for name in ("int64", "float64", "float32")
    }
    total = {name: np.empty_like(mine.numpy()) for name, mine in plain.items()}

    def order_free() -> None:
        partial.begin(0)
        partial.add(delta, 0.5)
        ranks._summed(partial.vector.numpy())

    def by_mpi(name: str) -> None:
        plain[name].zero_().add_(delta.to(plain[name].dtype))
        ranks.comm.Reduce(plain[name].numpy(), total[name] if ranks.is_aggregator else None)

    contenders = {"the program": order_free} | {
        f"MPI {name}": functools.partial(by_mpi, name) for name in plain
    }
    times = [[seconds(ranks.comm, call) for call in contenders.values()] for _ in range(repeats + 1)][1:]
    return {
        name: 1e3 * statistics.median(column)
        for name, column in zip(contenders, zip(*times, strict=True), strict=True)
    }


def waiting(ranks: MpiRanks, wait_s: float) -> float:
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
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--wait", type=float, default=2.0, help="seconds for which rank 0 waits")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ranks = MpiRanks()
    comm = ranks.comm
    with tempfile.TemporaryDirectory() as folder:
        ours, num_params, plan_bytes = program(ranks, arguments.rounds, folder)
        size = arguments.rounds, num_params, plan_bytes
        contenders = ours, bare(comm, *size), transport(ranks, *size)
        times = [[seconds(comm, call) for call in contenders] for _ in range(arguments.turns)]
    by_kind, share = reductions(ranks, arguments.turns), waiting(ranks, arguments.wait)
    if not ranks.is_aggregator:
        return
    ours_ms, bare_ms, transport_ms = (
        1e3 * statistics.median(column) / arguments.rounds for column in zip(*times, strict=True)
    )
    print(f"{ranks.size} ranks, {ranks.library}, {num_params:,} parameters, plan of {plan_bytes:,} bytes")
    print(f"a round of the program, nothing trained  {ours_ms:9.3f} ms")
    print(f"the same bytes through its transport     {transport_ms:9.3f} ms")
    print(f"the same bytes in bare MPI calls         {bare_ms:9.3f} ms")
    print(f"the round, of the bare calls             {ours_ms / bare_ms:9.2f}")
    print(
        "summing 1.69 M parameters over the ranks: "
        + ", ".join(f"{k} {v:.1f} ms" for k, v in by_kind.items())
    )
    print(f"rank 0 takes {share:.1%} of a core while it waits for the hosts")


if __name__ == "__main__":
    main()
