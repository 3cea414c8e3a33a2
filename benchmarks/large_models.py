"""What a large model costs a run beside its training: CPU time and memory per parameter.

    python benchmarks/large_models.py 0.16 1.9 19.6 98.8     # millions of parameters, one process
    mpirun -n 3 python benchmarks/large_models.py 1.9        # one size, three ranks
    PYTHONPATH=FOLDER python benchmarks/large_models.py 1.9  # another checkout of hpctrip

A site of each host trains one linear layer of so many parameters for one step on two samples, which are also the test
set: the smallest local training. The runs are those of `hpctrip run`. Each size has a process of its own, because a
peak of memory only rises. Prints for each rank, times as medians over all rounds but the first,

    round       CPU seconds of a round, without its row in the results file
    train       those in the engine
    sum         nanoseconds of CPU a parameter for the sum of the updates
    exchange    the same for the exchange between ranks, the server step and the norm of the model's change
    start, rounds   peak of memory before the first round and after it, bytes a parameter, without what the process held
                before the model was built
    peak        that of the process, GB
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import hpctrip
from hpctrip.base.process import launched_rank, launched_size
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload
from hpctrip.runner import loop
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.host import Host

INPUTS = 784
PARTS = ("round", "host", "train", "evaluate")
TABLES = """
[sites]
num_sites = {hosts}
[workload]
kind = "wide"
outputs = {outputs}
[partition]
kind = "iid"
[policy]
kind = "all"
[server]
kind = "{server}"
[stop]
max_rounds = {rounds}
target_accuracy = "none"
"""


@WORKLOADS.add
class Wide(Workload):
    """One linear layer (synthetic)."""

    kind: ClassVar[str] = "wide"
    lr: ClassVar[float] = 0.1
    batch_size: ClassVar[int] = 2
    outputs: int = 10

    def task(self, seed: int) -> Task:
        """Two samples a site."""
        inputs = np.random.default_rng(seed).random((2 * max(1, launched_size() - 1), INPUTS), np.float32)
        data = Dataset(inputs, np.arange(len(inputs)))

        def build() -> nn.Module:
            return nn.Linear(INPUTS, self.outputs)

        return Task(
            data, data, self.outputs, build, torch.Tensor.float, F.cross_entropy, "noise", synthetic=True
        )


class Watch:
    """CPU seconds of the parts of a run's rounds, measured around the program's own functions, and peaks of memory."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, float]] = []
        self.peaks: dict[str, int] = {}
        self.before = 0
        """Bytes that the process held before the model was built."""

    def timed(self, part: str, call: Callable) -> Callable:
        """The function, its CPU seconds added to this part of the current round, if any."""

        def measured(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                if self.rounds:
                    self.rounds[-1][part] += time.process_time() - began

        return measured

    def install(self) -> None:
        """Watch what this process runs."""
        init, train_round, train = Host.__init__, loop.train_round, Sequential.train

        def build(host: Host, *arguments: Any, **options: Any) -> None:
            self.before = memory("VmRSS")
            init(host, *arguments, **options)

        def watched_round(*arguments: Any) -> Any:
            if not self.rounds:
                self.peaks["start"] = memory("VmHWM")
                Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
            self.rounds.append(dict.fromkeys(PARTS, 0.0))
            return self.timed("round", train_round)(*arguments)

        def sites(*arguments: Any, **options: Any) -> Iterator:
            updates = train(*arguments, **options)
            following = self.timed("train", lambda: next(updates, None))
            while update := following():
                yield update

        Host.__init__, loop.train_round, Sequential.train = build, watched_round, sites
        Host.train = self.timed("host", Host.train)
        Host.evaluate = self.timed("evaluate", Host.evaluate)
        Aggregator.finish = self.timed("round", Aggregator.finish)


def memory(line: str) -> int:
    """Bytes of this process in such a line of /proc/self/status."""
    return int(Path("/proc/self/status").read_text().split(f"{line}:")[1].split()[0]) * 1024


def measure(millions: float, server: str, rounds: int) -> str:
    """A row of the table, of this rank."""
    outputs = round(millions * 1e6 / (INPUTS + 1))
    num_params = (INPUTS + 1) * outputs
    watch = Watch()
    watch.install()
    hosts = max(1, launched_size() - 1)
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder, "wide.toml")
        scenario.write_text(TABLES.format(hosts=hosts, outputs=outputs, server=server, rounds=rounds))
        hpctrip.run(scenario, out=Path(folder, "run.h5"), quiet=True, launched=launched_size() > 1)
    watch.peaks["rounds"] = memory("VmHWM")
    seconds = {part: statistics.median(one[part] for one in watch.rounds[1:]) for part in PARTS}
    summed_s = seconds["host"] - seconds["train"]
    exchange_s = seconds["round"] - seconds["host"] - seconds["evaluate"]
    held = {name: (peak - watch.before) / num_params for name, peak in watch.peaks.items()}
    return (
        f"{num_params / 1e6:7.2f} M {server:8} rank {launched_rank()}  round {seconds['round']:7.4f} s  "
        f"train {seconds['train']:7.4f} s  sum {1e9 * summed_s / num_params:5.1f} ns  "
        f"exchange {1e9 * exchange_s / num_params:5.1f} ns  start {held['start']:5.1f} B  "
        f"rounds {held['rounds']:5.1f} B  peak {max(watch.peaks.values()) / 1e9:5.2f} GB"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("millions", type=float, nargs="+", help="parameters of the model, in millions")
    parser.add_argument("--server", default="fedavg")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    if len(arguments.millions) == 1:
        # in one piece: ranks write side by side, and print would write the line and its end apart
        sys.stdout.write(measure(arguments.millions[0], arguments.server, arguments.rounds) + "\n")
        return
    for size in arguments.millions:
        options = ["--server", arguments.server, "--rounds", str(arguments.rounds)]
        subprocess.run([sys.executable, __file__, str(size), *options], check=True, env=os.environ)


if __name__ == "__main__":
    main()
