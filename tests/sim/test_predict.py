"""How long a round will take, predicted from what the aggregator sees, against what the clock then charges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import Network
from hpctrip.sim.policies.powertrip import PowerTrip
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import History
from hpctrip.sim.sites import SITES
from hpctrip.sim.timing import Timing, prefix_round_s
from hpctrip.sim.world import World

CLOCKS = ("straggler", "max-plus-max", "mean-power", "aggregate-throughput")


def world(power, clock, seed=0, **network):
    """Sites with such power somewhere between 100 and 10,000 miles away."""
    return World.build(
        SITES["uniform"](num_sites=len(power.fractions)),
        Network(**network),
        power,
        THROUGHPUT_MODELS["capped"](),
        Timing(clock=clock),
        0.0,
        seed,
    )


def seen(world, work_s):
    """What an exact profiler sees."""
    return Profiler().view(world, 0.0, History(), work_s, 0)


# Predicted and charged


@given(data=st.data(), num_sites=st.integers(1, 12), seed=st.integers(0, 1000))
@pytest.mark.parametrize("link", [{}, {"aggregator_bandwidth_bps": 2e9, "round_trip": True}])
@pytest.mark.parametrize("clock", CLOCKS)
def test_without_surprises_the_clock_charges_what_was_predicted(steady, clock, link, data, num_sites, seed):
    power = data.draw(arrays(float, num_sites, elements=st.floats(0.01, 1)))
    work_s = data.draw(arrays(float, num_sites, elements=st.floats(0.1, 500)))
    order = np.array(data.draw(st.permutations(range(num_sites))))
    sites = world(steady(power), clock, seed, **link)
    predicted = prefix_round_s(seen(sites, work_s), order, clock)
    charged = [sites.round_timing(1, 0.0, order[:k], work_s).makespan_s for k in range(1, num_sites + 1)]
    assert predicted == pytest.approx(charged, rel=1e-12, abs=0)


@pytest.mark.parametrize("clock", CLOCKS)
def test_algorithm_1_may_predict_as_the_clock_charges(steady, clock):
    """`round_time = "clock"`: every candidate's T(k) is the makespan of its cohort."""
    rng = np.random.default_rng(1)
    sites = world(steady(rng.uniform(0.1, 1, 20)), clock, aggregator_bandwidth_bps=1e10)
    work_s, order = rng.uniform(1, 100, 20), rng.permutation(20)
    candidates = PowerTrip(round_time="clock").candidates(order, seen(sites, work_s), 5, 0.1)
    charged = [sites.round_timing(1, 0.0, order[:k], work_s).makespan_s for k in candidates.k]
    assert len(charged) == 20 and candidates.round_s == pytest.approx(charged, rel=1e-12, abs=0)


def test_a_cohort_without_power_never_ends(view):
    sites = view([0.0, 0.5], [1.0, 1.0])
    for clock in CLOCKS:
        predicted = prefix_round_s(sites, np.array([0, 1]), clock)
        assert predicted[0] == np.inf
        assert np.isfinite(predicted[1]) == (clock in ("mean-power", "aggregate-throughput"))


def test_no_work_takes_no_time_even_without_power(view):
    sites = view([0.0, 1.0], [3.0, 2.0], work_s=np.array([0.0, 10.0]))
    for clock in ("straggler", "max-plus-max"):
        assert prefix_round_s(sites, np.array([0, 1]), clock)[0] == 3.0


# Algorithm 1's own estimate


def test_algorithm_1_takes_the_mean_work_of_the_sites_it_would_ask(view):
    """Ten small sites of 2 s rank above ten large ones of 18 s: a round of the small ones takes 2 s and not 10."""
    sites = view(np.ones(20), np.zeros(20), work_s=np.repeat([2.0, 18.0], 10))
    predicted = PowerTrip().candidates(np.arange(20), sites, 10, 0.1).round_s
    assert predicted[:10] == pytest.approx([2] * 10)
    assert predicted[19] == pytest.approx(10) and predicted[10] == pytest.approx((20 + 18) / 11)


def test_natural_shards_move_the_vote(view):
    """The mean of all sites would hide that sites 10 to 19 are what takes long."""
    small_first = view(np.ones(20), np.full(20, 1.0), work_s=np.repeat([2.0, 18.0], 10))
    equal = view(np.ones(20), np.full(20, 1.0), work_s=np.full(20, 10.0))
    votes = [PowerTrip().candidates(np.arange(20), sites, 10, 0.1).vote for sites in (small_first, equal)]
    assert votes == [10, 20]


def test_algorithm_1_knows_the_link_that_the_cohort_shares(view):
    """Each transfer takes 3 s alone and 1 s of the aggregator's link: from the fourth site on the link is the bound."""
    sites = view(np.ones(6), np.full(6, 3.0), link_s=1.0)
    predicted = PowerTrip().candidates(np.arange(6), sites, 3, 0.1).round_s
    assert predicted.tolist() == [13, 13, 13, 14, 15, 16]


@given(
    arrays(float, 15, elements=st.floats(0.01, 1)),
    arrays(float, 15, elements=st.floats(0, 1e4)),
    st.floats(0.01, 1e4),
    st.permutations(range(15)),
)
def test_with_equal_shards_and_no_link_the_estimate_is_the_papers_to_the_last_bit(
    view, power, comm_s, work_s, order
):
    """T(k) = c / mean(P of the top k) + max(L of the top k) (Algorithm 1)."""
    sites, order = view(power, comm_s, work_s=np.full(15, work_s)), np.array(order)
    mean_power = np.cumsum(power[order]) / np.arange(1, 16)
    expected = work_s / mean_power + np.maximum.accumulate(comm_s[order])
    assert PowerTrip().candidates(order, sites, 8, 0.1).round_s.tolist() == expected.tolist()
