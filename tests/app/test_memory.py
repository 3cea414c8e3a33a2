"""A host's memory: flat over the rounds, independent of the number of sites, growing with the block alone."""

import subprocess
import sys

import pytest

MODEL_MB = 0.83  # 207 k parameters in float32

SCRIPT = """
import sys
from pathlib import Path
import torch
from hpctrip.app.config import resolve
from hpctrip.app.experiment import Run, State
from hpctrip.ranks.serial import SerialRanks

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
run = Run(experiment, experiment.workload.task(0), SerialRanks(), torch.device("cpu"))
state, params = State(), run.initial_params
while (plan := run.plan(state)) is not None:
    hosted, before = run.train_hosted(params, plan), params
    with run.wall.phase("exchange"):
        params, tail = run.ranks.combine(hosted.vector, len(params), lambda total: run.step(before, plan, total))
    state = run.advance(state, plan, params - before, tail, run.evaluate_hosted(params, plan))
    if state.round in (20, rounds):
        print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3)
"""


def peaks_mb(*arguments):
    """Peak resident memory in MB after 20 rounds and after the last."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_is_flat_over_200_rounds():
    after_20, after_200 = peaks_mb(4, "loop", 1, 200)
    assert after_200 - after_20 < 15 * MODEL_MB  # one vector kept each round would be 180


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_grows_with_the_block_and_not_with_the_number_of_sites():
    few, many = peaks_mb(4, "loop", 1, 2)[-1], peaks_mb(80, "loop", 1, 2)[-1]
    assert many - few < 15 * MODEL_MB  # one update kept for every site would be 76
    small, large = peaks_mb(80, "stacked", 2, 2)[-1], peaks_mb(80, "stacked", 40, 2)[-1]
    assert large - small > 76 * MODEL_MB  # weights and updates of 38 more sites
