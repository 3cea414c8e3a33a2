"""Memory: flat over the rounds, independent of the number of sites, growing with the block alone."""

import json
import sys

import pytest
import torch
from allocations import NewTensors

from hpctrip.ranks.base import Ranks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import resolve
from hpctrip.runner.host import Host
from hpctrip.sim.step import State

MODEL_MB = 0.83  # 207 k parameters in float32

SCRIPT = """
import json
import sys
from pathlib import Path
from unittest.mock import Mock
import torch
from hpctrip.runner.aggregator import Aggregator
from hpctrip.record.checkpoint import Checkpointer, Checkpointing
from hpctrip.runner.experiment import resolve
from hpctrip.runner.host import Host
from hpctrip.runner.loop import Results, train
from hpctrip.runner.signals import Interrupt, Interruption, Signals
from hpctrip.base.process import set_up_malloc
from hpctrip.ranks.transport import open_ranks
from hpctrip.sim.step import State

torch.set_num_threads(1)


class Watched(Host):
    def evaluate(self, params, assignment, *rest):
        if assignment.round in (10, self.experiment.stop.max_rounds):
            peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1e3
            peaks = self.ranks.gather(peak)
            if peaks:
                print("peaks", *peaks, flush=True)
        return super().evaluate(params, assignment, *rest)


def run(ranks, num_sites, engine, block, rounds):
    experiment = resolve({
        "sites": {"num_sites": num_sites},
        "workload": {"kind": "emnist", "train_samples": 160, "test_samples": 20},
        "partition": {"kind": "iid", "samples_per_site": 2},
        "policy": {"kind": "all"},
        "engine": {"name": engine, "sites_per_block": block},
        "stop": {"max_rounds": rounds},
    }).experiment
    host = Watched(experiment, num_sites, experiment.workload.task(0), ranks, torch.device("cpu"))
    results = None
    if ranks.is_aggregator:
        never = Checkpointer(Checkpointing(enabled=False), "run.h5", "", {})
        nothing = Interruption(Interrupt(), "no-results", ["here"] * ranks.size, Signals())
        callbacks = Mock(round=lambda *args: "")
        results = Results(Aggregator(host), Mock(), never, nothing, Mock(), callbacks, None)
    train(host, State(), host.initial_params, results, Signals())


with open_ranks() as ranks:
    if ranks.rank not in ranks.hosts:
        set_up_malloc(trains=False)
    for arguments in json.loads(sys.argv[1]):
        run(ranks, *arguments)
"""


def peaks_mb(launch, tmp_path, n, *runs):
    """Peak resident memory of every rank in MB so far, after ten rounds (where there are so many) and after the last of
    each of these runs, which follow each other in one process: (sites, engine, sites per block, rounds)."""
    script = tmp_path / "rounds.py"
    script.write_text(SCRIPT)
    ended = launch(n, json.dumps(runs), script=script)
    assert ended.code == 0, ended.err
    lines = [line.split()[1:] for line in ended.out.splitlines() if line.startswith("peaks")]
    return [[float(peak) for peak in line] for line in lines]


@pytest.mark.mpi
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_is_flat_over_rounds_and_sites_and_grows_with_the_block(launch, tmp_path):
    """Of the aggregator and of a host. A peak only rises, so the runs are in the order of their needs."""
    runs = (4, "sequential", 1, 40), (80, "sequential", 1, 1), (80, "stacked", 2, 1), (80, "stacked", 40, 1)
    peaks = peaks_mb(launch, tmp_path, 2, *runs)
    after_10, after_40, many, small, large = peaks
    for rank in (0, 1):
        assert after_40[rank] - after_10[rank] < 15 * MODEL_MB  # one vector kept each round would be 30
        assert many[rank] - after_40[rank] < 15 * MODEL_MB  # one update kept for every site would be 76
    assert large[1] - small[1] > 76 * MODEL_MB  # weights and updates of 38 more sites


@pytest.mark.parametrize(
    "server",
    [{}, {"momentum": 0.9, "nesterov": True}, {"kind": "fedadam"}],
    ids=["fedavg", "nesterov", "fedadam"],
)
def test_sum_and_server_step_of_a_round_make_one_vector_as_long_as_the_model(server):
    """The new model; anything else of that length would take more time than the arithmetic on it."""
    tables = {
        "sites": {"num_sites": 2},
        "workload": {"kind": "emnist", "train_samples": 16, "test_samples": 20},
        "partition": {"kind": "iid"},
        "policy": {"kind": "all"},
        "server": server,
    }
    experiment = resolve(tables).experiment
    host = Host(experiment, 2, experiment.workload.task(0), Ranks(), torch.device("cpu"))
    params = host.initial_params
    _, assignment = Aggregator(host).begin(State())
    (update,) = host.engine.train(params, [host.visits(0, 1)])
    total, integers = host.train(params, assignment)
    with NewTensors() as made:
        host.partial.add(update.delta, 0.0, update.magnitude)
        after, _ = host.server_step(params, assignment, total, integers)
    assert [size for size in made.sizes if size > len(params) / 2] == [len(params)]
    assert after.isfinite().all() and not torch.equal(after, params)
