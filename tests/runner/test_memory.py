"""Memory: flat over the rounds, independent of the number of sites, growing with the block alone."""

import sys

import pytest

MODEL_MB = 0.83  # 207 k parameters in float32

SCRIPT = """
import sys
from pathlib import Path
from unittest.mock import Mock
import torch
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.checkpointer import Checkpointer, Checkpointing
from hpctrip.runner.experiment import resolve
from hpctrip.runner.host import Host
from hpctrip.runner.rank0 import Rank0
from hpctrip.runner.loop import train
from hpctrip.runner.signals import Interrupt, Interruption
from hpctrip.runner.cache.writer import NoCache
from hpctrip.ranks.node import map_large_blocks
from hpctrip.ranks.open import open_ranks
from hpctrip.sim.step import State

num_sites, engine, block, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(1)
experiment = resolve({
    "sites": {"num_sites": num_sites},
    "workload": {"kind": "emnist", "train_samples": 160, "test_samples": 20},
    "partition": {"kind": "iid", "samples_per_site": 2},
    "policy": {"kind": "all"},
    "engine": {"name": engine, "sites_per_block": block},
    "stop": {"max_rounds": rounds},
}).experiment

class Watched(Host):
    def evaluate(self, params, assignment, norm):
        if assignment.round in (20, rounds):
            peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3
            peaks = self.ranks.gather(peak)
            if peaks:
                print("peaks", *peaks, flush=True)
        return super().evaluate(params, assignment, norm)

with open_ranks() as ranks:
    if ranks.rank not in ranks.hosts:
        map_large_blocks()
    host = Watched(experiment, num_sites, experiment.workload.task(0), ranks, torch.device("cpu"))
    rank0 = None
    if ranks.is_aggregator:
        never = Checkpointer(Checkpointing(enabled=False), Mock(), "", {}, 0)
        nothing = Interruption(Interrupt(), "no-results", ["here"] * ranks.size)
        callbacks = Mock(round=lambda *args: "")
        rank0 = Rank0(Aggregator(host), Mock(), never, nothing, Mock(), callbacks, NoCache())
    train(host, State(), host.initial_params, rank0)
"""


def peaks_mb(launch, tmp_path, n, *arguments):
    """Peak resident memory of every rank in MB, after 20 rounds (where there are so many) and after the last."""
    script = tmp_path / "rounds.py"
    script.write_text(SCRIPT)
    ended = launch(n, *arguments, script=script)
    assert ended.code == 0, ended.err
    lines = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("peaks")]
    return [[float(peak) for peak in line] for line in lines]


@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_of_aggregator_and_host_is_flat_over_200_rounds(launch, tmp_path):
    after_20, after_200 = peaks_mb(launch, tmp_path, 2, 4, "sequential", 1, 200)
    assert len(after_20) == 2
    for early, late in zip(after_20, after_200, strict=True):
        assert late - early < 15 * MODEL_MB  # one vector kept each round would be 180


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_grows_with_the_block_and_not_with_the_number_of_sites(launch, tmp_path):
    def peak_mb(*arguments):
        return peaks_mb(launch, tmp_path, 0, *arguments, 2)[-1][0]

    few, many = peak_mb(4, "sequential", 1), peak_mb(80, "sequential", 1)
    assert many - few < 15 * MODEL_MB  # one update kept for every site would be 76
    small, large = peak_mb(80, "stacked", 2), peak_mb(80, "stacked", 40)
    assert large - small > 76 * MODEL_MB  # weights and updates of 38 more sites
