"""Power and what it is worth are two quantities: policies rank by power, time follows throughput."""

import numpy as np
import pytest

from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import Network
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerToCost, PowerTrip
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.rounds import History
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World

V100_AT_HALF = 3514.99 / 5064.97
"""Seconds of an epoch at 250 W over those at 125 W: half the power is worth 69.4 % of the throughput."""


def world(power, throughput):
    """Near sites of 1 s of communication."""
    return World.build(
        SITES["uniform"](num_sites=3, min_distance_m=0.0, max_distance_m=0.0),
        Network(update_bytes=1e9 / 8),
        power,
        throughput,
        Timing(seconds_per_sample=1.0),
        0.0,
        seed=0,
    )


@pytest.fixture
def with_gpus(simulation, steady):
    """`with_gpus(**others)`: rounds of sites whose power runs two, two and one of four GPUs."""
    sites = world(steady([0.55, 0.70, 0.25]), THROUGHPUT_MODELS["gpus"](num_gpus=4))
    return lambda **others: simulation(sites, **others)


def test_half_the_power_of_a_v100_is_recorded_as_half_and_its_worth_beside_it(simulation):
    rounds = simulation(world(POWER_MODELS["constant"](fraction=0.5), THROUGHPUT_MODELS["capped"]()))
    row = rounds.row(rounds.begin(State()), Outcome.assumed(np.zeros(3)))
    assert row.cohort.power_fraction.tolist() == row.cohort.seen_power_fraction.tolist() == [0.5] * 3
    assert row.cohort.throughput_fraction == pytest.approx([V100_AT_HALF] * 3)
    assert row.cohort.compute_s == pytest.approx([100 / V100_AT_HALF] * 3)


def test_the_highest_power_is_not_the_highest_throughput(with_gpus):
    rounds = with_gpus(policy=POLICIES["highest-power"](k=3))
    draft = rounds.begin(State())
    assert draft.cohort.tolist() == [1, 0, 2]  # by throughput 0 and 1 would tie, and 0 come first
    assert draft.view.throughput_fraction.tolist() == [0.5, 0.5, 0.25]
    assert draft.timing.compute_s.tolist() == [200, 200, 400]


def test_the_score_weighs_power(with_gpus):
    sites = with_gpus().view(State())
    assert PowerToCost().rank(sites).tolist() == [1, 0, 2]
    scores = PowerToCost(power_weight=1.0).scores(sites)
    assert np.exp(scores) == pytest.approx(sites.power_fraction)
    differences = PowerToCost(power_weight=1.0, score="difference").scores(sites)
    assert differences == pytest.approx([0.3 / 0.45, 1, 0])


def test_the_estimated_round_time_follows_throughput(with_gpus):
    """100 s of work: two GPUs of four take 200 s, and with the site of one GPU the mean is 5 of 12."""
    sites = with_gpus().view(State())
    predicted = PowerTrip().candidates(np.array([1, 0, 2]), sites, 3, 0.1, History()).round_s
    assert predicted == pytest.approx([200 + 1, 200 + 1, 240 + 1])


def test_a_site_without_power_is_worth_nothing_whatever_the_curve_says(simulation, steady):
    flat = THROUGHPUT_MODELS["capped"](gpu="mine", curve=[[0.5, 1.0], [1.0, 1.0]])
    sites = simulation(world(steady([0.0, 0.25, 0.5]), flat)).view(State())
    assert sites.throughput_fraction.tolist() == [0.0, 0.5, 1.0]
