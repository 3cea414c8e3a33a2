"""The published environment of HALoS (inputs/worlds/halos.toml): its hours by timing alone, against another script.

The script below knows nothing of hpctrip: it has the published numbers once more, and a heap.
"""

import heapq
from itertools import permutations
from math import ceil, inf
from pathlib import Path

import numpy as np
import pytest

from hpctrip.runner.experiment import read_input
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.step import State

INPUT = Path(__file__).parents[2] / "inputs" / "worlds" / "halos.toml"
SPEEDS = [
    [0.232, 0.907, 0.828, 0.347],
    [0.574, 0.531, 0.722, 0.194],
    [0.852, 0.132, 0.896, 0.107],
    [0.827, 0.515, 0.527, 0.788],
]
GBIT_S = {(1, 2): 0.537, (1, 3): 0.935, (1, 4): 0.202, (2, 3): 0.386, (2, 4): 0.117, (3, 4): 0.127}
STEP_S, MODEL_BITS, STEPS = 0.238391, 32 * 70_426_624, 6144 * 1024 // 64

WORKERS = [(region, speed / 0.907) for region, row in enumerate(SPEEDS, 1) for speed in row]


def bandwidth(one, other):
    return 1e9 * (100.0 if one == other else GBIT_S[min(one, other), max(one, other)])


def diloco_s(steps_of):
    """Rounds of the slowest worker's steps and a ring all-reduce over the slowest link of the best ring."""
    slowest_bps = max(
        min(bandwidth(a, b) for a, b in zip(ring, ring[1:] + ring[:1], strict=True))
        for ring in permutations([1, 2, 3, 4])
    )
    ring_s = 2 * (len(WORKERS) - 1) * MODEL_BITS / len(WORKERS) / slowest_bps
    clock_s, done = 0.0, 0
    while done < STEPS:
        clock_s += max(steps_of(speed) * STEP_S / speed for _, speed in WORKERS) + ring_s
        done += sum(steps_of(speed) for _, speed in WORKERS)
    return clock_s


def async_local_sgd_s(all_steps):
    """Each worker goes on by itself: its steps, then twice the model over its link to region 1; ids break ties."""
    events, done, clock_s = [], 0, 0.0

    def start(worker, now_s):
        region, speed = WORKERS[worker]
        steps = ceil(32 * speed)
        exchange_s = 2 * MODEL_BITS / bandwidth(region, 1)
        heapq.heappush(events, (now_s + steps * STEP_S / speed + exchange_s, worker, steps))

    for worker in range(len(WORKERS)):
        start(worker, 0.0)
    while done < all_steps:
        clock_s, worker, steps = heapq.heappop(events)
        done += steps
        start(worker, clock_s)
    return clock_s


def simulated_s(*lines, steps=STEPS):
    """Simulated seconds of the input until it stops."""
    simulation = read_input([INPUT], [*lines, f"stop.max_samples={steps}"]).experiment.simulation(
        1, np.full(16, 100)
    )
    state = State()
    while not state.stop_reason:
        draft = simulation.begin(state)
        state, _ = simulation.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), np.nan))
    assert state.stop_reason == f"max_samples = {steps}"
    return state.clock_s


BY_SPEED = ("train.local_steps=1", "rounds.work_by_speed=32")
BUFFERED = 'rounds={kind="buffered", num=1, concurrency=16, work_by_speed=32}'
STAR = ("network.exchange=star", "network.round_trip=true")


@pytest.mark.parametrize(
    ("lines", "steps_of"),
    [((), lambda speed: 32), (BY_SPEED, lambda speed: ceil(32 * speed))],
    ids=["DiLoCo", "DiLoCo with DyLU"],
)
def test_the_hours_are_those_of_an_independent_script(lines, steps_of):
    expected_s = diloco_s(steps_of)
    assert 3600 < expected_s < inf and simulated_s(*lines) == pytest.approx(expected_s, rel=1e-9, abs=0)


def test_the_first_rounds_of_asynchronous_local_sgd_take_the_time_of_an_independent_script():
    """Some 500 rounds of one update each, in which every worker has gone on many times."""
    lines, steps = ("train.local_steps=1", BUFFERED, *STAR), STEPS // 10
    expected_s = async_local_sgd_s(steps)
    assert simulated_s(*lines, steps=steps) == pytest.approx(expected_s, rel=1e-9, abs=0)
