"""The scenarios of inputs/ are comparable: a round's compute time at full power is the same in all of them."""

from pathlib import Path

import numpy as np
import pytest

from hpctrip.runner.experiment import read_input

ROOT = Path(__file__).parents[1]
COMPUTE_S = 12.0
"""c of a round: as long as 1.5 GB take at 1 Gbit/s."""
ABSENT = {"speech_ten_words.toml": 3323}
"""{input: training samples} of those that need a download; README states the size."""
OF_THEIR_OWN = {"llm_centralized.toml", "planner.toml", "waiting.toml"}
"""Scenarios that are not compared with the others: their sites have speeds or hours of their own."""
SCENARIOS = sorted(path.name for path in (ROOT / "inputs").glob("*.toml"))


def given(name):
    return read_input([str(ROOT / "inputs" / name)] if name else []).experiment


@pytest.fixture(scope="module")
def sizes():
    """`sizes(name)`: samples of every site of a scenario, [N]. Data are prepared once."""
    tasks = {}

    def of(name):
        experiment = given(name)
        num_sites = len(experiment.sites.distances_m(experiment.seed))
        if experiment.train.local_steps:
            return np.full(num_sites, 1000)  # as many full batches however large a shard is
        if name in ABSENT:
            return np.full(num_sites, ABSENT[name] // num_sites)
        workload, seed = experiment.workload, experiment.seed
        if (
            workload.kind == "speech"
        ):  # one speaker a site, and all say as much: a 25th of both has the same mean
            fewer = workload.chirps.model_copy(update={"num_speakers": workload.chirps.num_speakers // 25})
            workload, num_sites = workload.model_copy(update={"chirps": fewer}), num_sites // 25
        if repr(workload) not in tasks:
            workload.prepare_data(seed)
            tasks[repr(workload)] = workload.task(seed)
        train = tasks[repr(workload)].train
        shards = experiment.partition.split(train.labels, train.groups, num_sites=num_sites, seed=seed)
        return np.array([len(shard) for shard in shards])

    return of


@pytest.mark.parametrize("name", ["", *(name for name in SCENARIOS if name not in OF_THEIR_OWN)])
def test_a_round_at_full_power_takes_twelve_seconds_of_compute(name, sizes):
    experiment = given(name)
    visits = experiment.workload.local_work(experiment.train).num_visits(sizes(name))
    assert experiment.timing.seconds_per_sample * visits.mean() == pytest.approx(COMPUTE_S, rel=0.05)


def test_the_centralized_twin_computes_a_sample_as_fast_as_the_sites():
    assert given("llm_centralized.toml").timing == given("llm_lora.toml").timing
