"""The virtual clock: how long a round takes, and how long the aggregator expects it to take."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from worlds import Grouped, matrix
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.base.series import never, next_step_s
from hpctrip.sim.bill import bill
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.objectives import own_spending
from hpctrip.sim.policies.powertrip import PowerTrip
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.quantities import ACTIVITIES, ENERGY, QUANTITIES
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.timing import Timing, elapsed_s, prefix_in_time, prefix_round_s, prefix_spending, return_s

STEP_S = 300.0
CHANGES = partial(next_step_s, step_s=STEP_S)
"""Power may change every 300 s."""


def stepped(*powers):
    """Power of one site (or rows of several) that changes every 300 s and stays at the last value."""
    table = np.atleast_2d(np.array(powers, dtype=float).T).T
    return lambda t: table[min(int(t // STEP_S), len(table) - 1)]


@pytest.mark.parametrize(
    ("powers", "start_s", "work_s", "expected_s"),
    [
        ([[1.0, 0.5, 0.1]], 1234.5, [10, 10, 10], [10, 20, 100]),  # steady power: the work by its inverse
        ([0.5, 0.1, 1.0], 200, [100], [420]),  # 100 s at 0.5 do 50, 300 s at 0.1 do 30, the last 20 take 20 s
        ([[1.0, 0.5], [0.5, 1.0]], 0, [100, 300], [100, 450]),  # each site in its own time
        ([1.0, 0.5], 300, [150], [300]),  # a round that starts exactly on a step,
        ([1.0, 0.5], 0, [300], [300]),  # and one that ends on one
        ([0.0, 0.0, 1.0], 0, [10], [610]),  # a site without power waits until it returns
    ],
)
def test_work_is_integrated_over_the_power_as_it_changes(powers, start_s, work_s, expected_s):
    elapsed = elapsed_s(stepped(*powers), CHANGES, start_s, np.array(work_s, dtype=float))
    assert elapsed == pytest.approx(expected_s)


def test_a_site_that_never_has_power_again_is_an_error_and_not_a_hang():
    with pytest.raises(InputError, match="no power"):
        elapsed_s(stepped(0.0), partial(next_step_s, step_s=86400.0), 0.0, np.array([1.0]))


def test_no_work_takes_no_time_even_without_power():
    assert elapsed_s(lambda t: np.zeros(1), never, 0.0, np.zeros(1)) == [0.0]


@given(
    arrays(float, (20, 3), elements=st.floats(0.05, 1.0)),
    st.floats(0.0, 3000.0),
    arrays(float, 3, elements=st.floats(0.1, 2000.0)),
)
def test_the_integral_of_power_over_the_elapsed_time_is_the_work(table, start_s, work_s):
    power = stepped(*table)
    compute_s = elapsed_s(power, CHANGES, start_s, work_s)
    edges = np.arange(0, 60) * STEP_S + STEP_S
    for site, end_s in enumerate(start_s + compute_s):
        times = np.unique(np.concatenate([[start_s, end_s], edges[(edges > start_s) & (edges < end_s)]]))
        done = sum((b - a) * power((a + b) / 2)[site] for a, b in pairwise(times))
        assert done == pytest.approx(work_s[site], rel=1e-9)


def makespan_s(timing, throughput, next_change_s, start_s, work_s, total_work_s, comm_s):
    """Length of a round in which every update arrives."""
    compute_s = timing.elapsed_compute_s(throughput, next_change_s, start_s, work_s, total_work_s)
    return timing.makespan_s(compute_s, comm_s, np.full(len(comm_s), Status.ARRIVED))


def throughput(t):
    return np.array([1.0, 0.5])


C_S, L_S = np.array([10.0, 10.0]), np.array([30.0, 5.0])
W_S = 40.0
"""Two sites; all N together have 40 s of work."""


@pytest.mark.parametrize(
    ("clock", "expected_s"),
    [
        ("straggler", 40),  # max(10 + 30, 20 + 5)
        ("max-plus-max", 50),  # 20 + 30
        ("mean-power", 10 / 0.75 + 30),
        ("aggregate-throughput", 40 / 1.5 + 30),
    ],
)
def test_every_reading_of_the_clock(clock, expected_s):
    assert makespan_s(Timing(clock=clock), throughput, never, 0.0, C_S, W_S, L_S) == pytest.approx(expected_s)


def test_frozen_power_ignores_what_happens_inside_the_round():
    args = (stepped(0.5, 0.1, 1.0), CHANGES, 200.0, np.array([100.0]), 100.0, np.array([1.0]))
    assert makespan_s(Timing(power="frozen"), *args) == pytest.approx(201)
    assert makespan_s(Timing(power="integrated"), *args) == pytest.approx(421)


CLOCKS = ("straggler", "max-plus-max", "mean-power", "aggregate-throughput")


@pytest.fixture(scope="module", autouse=True)
def three_regions(tmp_path_factory):
    """Links between the regions 0, 1 and 2, of 0.5 to 3 Gbit/s and up to 4 s, which are others one way than back."""
    folder = tmp_path_factory.mktemp("links")
    rows = "0,1,100,1 1,0,8000,0.5 0,2,60,0.8 2,0,40,3 1,2,900,2 2,1,30,0.7 0,0,1,1.5 1,1,1,2.5 2,2,1,1"
    world.matrix = partial(matrix, folder, rows)


def world(power, clock, seed=0, accounts=None, deadline_s=None, kind="distance", **network):
    """Sites with such power somewhere between 100 and 10,000 miles away, or in regions 0 to 2."""
    return build_world(
        Grouped(num_sites=len(power.fractions)),
        network=DistanceNetwork(**network) if kind == "distance" else world.matrix(**network),
        power=power,
        throughput=THROUGHPUT_MODELS["capped"](),
        timing=Timing(clock=clock),
        seed=seed,
        accounts=accounts or Accounts(),
        faults=Faults(deadline_s=deadline_s),
        carbon=SIGNALS["constant"](per_kwh=300.0),
        price=SIGNALS["constant"](per_kwh=-0.1),
    )


def seen(world, work_s):
    """The view of an exact profiler."""
    return Profiler().view(world, 0.0, History(), work_s, 0)


# Transfers that overlap computing


def run_ahead(compute_s, transfer_s, overlap, num_rounds):
    """Seconds a round of sites that each go on with a round when they have done the last one, and then wait, after that
    share of it, until the transfers of all have ended."""
    now_s, sent_s = np.zeros(len(compute_s)), -np.inf
    for _ in range(num_rounds):
        now_s = np.maximum(now_s + overlap * compute_s, sent_s) + (1 - overlap) * compute_s
        sent_s = (now_s + transfer_s).max()
    return now_s.max() / num_rounds


@pytest.mark.parametrize("overlap", [0.0, 0.1, 0.5, 1.0])
def test_a_round_lasts_as_long_as_one_of_sites_that_run_ahead_while_a_transfer_is_under_way(steady, overlap):
    sites = world(steady(np.array([1.0, 0.4, 0.7])), "straggler", update_bytes=6e8)
    sites, work_s = replace(sites, overlap=overlap), np.array([10.0, 9.0, 2.0])
    times, alone = (each.times(1, 0.0, np.arange(3), work_s) for each in (sites, replace(sites, overlap=0.0)))
    compute_s, transfer_s = alone.flights.compute_s, alone.flights.comm_s
    assert times.flights.comm_s == pytest.approx(np.maximum(transfer_s - overlap * compute_s, 0))
    assert times.makespan_s == pytest.approx(run_ahead(compute_s, transfer_s, overlap, 4000), rel=1e-3)
    assert times.makespan_s < alone.makespan_s or not overlap
    joules = [bill(each, t)[0]["comm_energy_j"] for each, t in ((sites, times), (sites, alone))]
    assert joules[0] == pytest.approx(joules[1])


# Predicted and charged

LINK = {"aggregator_bandwidth_bps": 2e9, "round_trip": True}
NETWORKS = ({}, LINK, {"deadline_s": 83.7}, {"deadline_s": 171.3, **LINK})
REGIONS = [
    {"kind": "matrix", **keys}
    for keys in (
        {"shared_uplinks": True, **LINK},
        {"shared_uplinks": True, "deadline_s": 93.7},
        {"exchange": "ring"},
        {"exchange": "two-level", "round_trip": True},
    )
]
"""A site sends for 12 s and more, and computes for up to 500 s at full power."""


WORLDS = {
    "clock": st.sampled_from(CLOCKS),
    "network": st.sampled_from([*NETWORKS, *REGIONS]),
    "num_sites": st.integers(1, 12),
    "seed": st.integers(0, 1000),
    "data": st.data(),
}


@settings(max_examples=200)  # of 32 pairs
@given(**WORLDS)
def test_without_surprises_the_clock_charges_what_was_predicted(
    steady, clock, network, data, num_sites, seed
):
    power = data.draw(arrays(float, num_sites, elements=st.floats(0.01, 1)))
    work_s = data.draw(arrays(float, num_sites, elements=st.floats(0.1, 500)))
    order = np.array(data.draw(st.permutations(range(num_sites))))
    sites = world(steady(power), clock, seed, **network)
    view = seen(sites, work_s)
    charged = [sites.times(1, 0.0, order[:k], work_s) for k in range(1, num_sites + 1)]
    lengths_s = [times.makespan_s for times in charged]
    assert prefix_round_s(view, order, clock) == pytest.approx(lengths_s, rel=1e-12, abs=0)
    arrived = [(times.flights.status == Status.ARRIVED).sum() for times in charged]
    assert prefix_in_time(view, order).tolist() == arrived


@settings(max_examples=100)  # of eight pairs
@given(
    **WORLDS | {"clock": st.sampled_from(["straggler", "max-plus-max"]), "network": st.sampled_from(NETWORKS)}
)
def test_without_surprises_a_site_of_a_cohort_returns_when_it_was_predicted(
    steady, clock, network, data, num_sites, seed
):
    power = data.draw(arrays(float, num_sites, elements=st.floats(0.01, 1)))
    work_s = data.draw(arrays(float, num_sites, elements=st.floats(0.1, 500)))
    cohort = np.array(data.draw(st.permutations(range(num_sites))))[: data.draw(st.integers(1, num_sites))]
    sites = world(steady(power), clock, seed, **network)
    times = sites.times(1, 0.0, cohort, work_s)
    back_s = np.where(
        times.flights.status == Status.ARRIVED, times.flights.compute_s + times.flights.comm_s, np.inf
    )
    assert return_s(seen(sites, work_s), len(cohort))[cohort] == pytest.approx(back_s, rel=1e-12, abs=0)


@settings(max_examples=200)  # of 64 combinations
@given(**WORLDS, waiting=st.sampled_from(["idle", "released"]))
def test_without_surprises_the_bill_is_what_was_predicted(
    steady, clock, waiting, network, data, num_sites, seed
):
    power = data.draw(arrays(float, num_sites, elements=st.floats(0.01, 1)))
    work_s = data.draw(arrays(float, num_sites, elements=st.floats(0.1, 500)))
    order = np.array(data.draw(st.permutations(range(num_sites))))
    sites = world(steady(power), clock, seed, Accounts(waiting=waiting), **network)
    predicted = prefix_spending(seen(sites, work_s), order)
    bills = [bill(sites, sites.times(1, 0.0, order[:k], work_s))[0] for k in range(1, num_sites + 1)]
    for spent in bills:
        spent[ENERGY.column] = sum(spent[name] for name in ACTIVITIES)
    for quantity in QUANTITIES:
        charged = [spent[quantity.column].sum() for spent in bills]
        assert predicted[quantity.column] == pytest.approx(charged, rel=1e-9, abs=0)


@pytest.mark.parametrize("clock", CLOCKS)
def test_what_a_site_spends_by_itself_is_the_bill_of_a_cohort_of_one(view, clock):
    sites = view([0.5, 1.0], [0, 0], busy_w=np.array([300.0, 400.0]), waiting_w=np.zeros(2), clock=clock)
    sites = replace(sites, work_s=np.array([10.0, 30.0]), comm_energy_j=7.0)
    alone = [prefix_spending(sites, np.array([site]))["energy_j"][0] for site in (0, 1)]
    assert own_spending(sites, ENERGY) == pytest.approx(alone)


@pytest.mark.parametrize("clock", CLOCKS)
def test_algorithm_1_may_predict_as_the_clock_charges(steady, clock):
    """`round_time = "clock"`: every candidate's T(k) is the makespan of its cohort."""
    rng = np.random.default_rng(1)
    sites = world(steady(rng.uniform(0.1, 1, 20)), clock, aggregator_bandwidth_bps=1e10)
    work_s, order = rng.uniform(1, 100, 20), rng.permutation(20)
    candidates = PowerTrip(round_time="clock").candidates(order, seen(sites, work_s), 5, 0.1, History())
    charged = [sites.times(1, 0.0, order[:k], work_s).makespan_s for k in candidates.k]
    assert len(charged) == 20 and candidates.round_s == pytest.approx(charged, rel=1e-12, abs=0)


def test_algorithm_1_counts_no_gain_of_sites_that_miss_the_deadline(view, history):
    """Sites 2 and 3 take 41 s, and site 4 has no power: they make the round as long as its deadline, and no better."""
    sites = view([1, 1, 1, 1, 0], [1, 1, 31, 31, 1], deadline_s=20.0)
    policy, order = PowerTrip(round_time="clock"), np.arange(5)
    weighed = policy.candidates(order, sites, 1, 1.0, history((1, 0, None)))
    assert weighed.round_s.tolist() == [11, 11, 20, 20, 20]
    assert (weighed.gain[1:] == weighed.gain[1]).all() and weighed.vote == 2
    last_first = policy.candidates(order[::-1], sites, 1, 1.0, history((1, 0, None)))
    assert last_first.gain.tolist() == [0, 0, 0, *weighed.gain[:2]] and last_first.vote == 5


def test_algorithm_1_compares_with_the_sites_of_the_last_round_that_were_in_time(view, history):
    (row,) = history((5, 0, None)).rows
    late = replace(row.cohort, status=np.array([0, 0, Status.LATE, Status.LATE, Status.OUT]))
    sites = view([1, 1, 1, 1, 0], [1, 1, 31, 31, 1], deadline_s=20.0)
    weighed = PowerTrip().candidates(np.arange(5), sites, 5, 0.1, History((replace(row, cohort=late),)))
    assert weighed.gain[1:] == pytest.approx(0.1)


def test_a_cohort_without_power_never_ends(view):
    sites = view([0.0, 0.5], [1.0, 1.0])
    for clock in CLOCKS:
        predicted = prefix_round_s(sites, np.array([0, 1]), clock)
        assert predicted[0] == np.inf
        assert np.isfinite(predicted[1]) == (clock in ("mean-power", "aggregate-throughput"))


def test_no_work_is_expected_to_take_no_time_even_without_power(view):
    sites = view([0.0, 1.0], [3.0, 2.0], work_s=np.array([0.0, 10.0]))
    for clock in ("straggler", "max-plus-max"):
        assert prefix_round_s(sites, np.array([0, 1]), clock)[0] == 3.0


# Algorithm 1's own estimate


def test_algorithm_1_takes_the_mean_work_of_the_sites_it_would_ask(view):
    """Ten small sites of 2 s rank above ten large ones of 18 s: a round of the small ones takes 2 s and not 10."""
    sites = view(np.ones(20), np.zeros(20), work_s=np.repeat([2.0, 18.0], 10))
    predicted = PowerTrip().candidates(np.arange(20), sites, 10, 0.1, History()).round_s
    assert predicted[:10] == pytest.approx([2] * 10)
    assert predicted[19] == pytest.approx(10) and predicted[10] == pytest.approx((20 + 18) / 11)

    # which moves the vote: the mean of all sites would hide that sites 10 to 19 are what takes long
    small_first = view(np.ones(20), np.full(20, 1.0), work_s=np.repeat([2.0, 18.0], 10))
    equal = view(np.ones(20), np.full(20, 1.0), work_s=np.full(20, 10.0))
    votes = [
        PowerTrip().candidates(np.arange(20), sites, 10, 0.1, History()).vote
        for sites in (small_first, equal)
    ]
    assert votes == [10, 20]


def test_algorithm_1_knows_the_link_that_the_cohort_shares(view):
    """Each transfer takes 3 s alone and 1 s of the aggregator's link: from the fourth site on the link is the bound."""
    sites = view(np.ones(6), np.full(6, 3.0), link_s=1.0)
    predicted = PowerTrip().candidates(np.arange(6), sites, 3, 0.1, History()).round_s
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
    assert PowerTrip().candidates(order, sites, 8, 0.1, History()).round_s.tolist() == expected.tolist()
