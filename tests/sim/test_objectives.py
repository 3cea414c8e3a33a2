"""Objectives: time, energy, carbon or money, on candidates checked by hand and in whole simulated runs."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from worlds import played
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.objectives import OBJECTIVES, own_spending
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerTrip
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.quantities import ENERGY
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.stop import Stop
from hpctrip.sim.timing import Timing, prefix_spending

KEYS = {"deadline": {"deadline_s": 3600.0}, "budget": {"energy": 1e9}}
"""Keys that an objective requires."""


def objective(kind, **keys):
    return OBJECTIVES[kind](**KEYS.get(kind, {}) | keys)


def weighed(gain, round_s, energy_j, carbon_g=math.nan):
    gain, round_s = np.array(gain, dtype=float), np.array(round_s, dtype=float)
    return Candidates(
        np.arange(1, len(gain) + 1),
        gain,
        round_s,
        gain / round_s,
        energy_j=np.array(energy_j, dtype=float),
        carbon_g=np.broadcast_to(np.array(carbon_g, dtype=float), gain.shape),
    )


THREE = weighed([1, 2, 3], [10, 16, 30], [100, 400, 900], [100, 250, 300])
"""Gain per second .1, .125, .1; joules per gain 100, 200, 300; grams per gain 100, 125, 100."""


@pytest.fixture
def sites(view):
    """Three sites of 1, 2 and 4 kW whose work takes 10 s: 10, 20 and 40 kJ; the last is the cleanest."""
    return view(
        [1.0, 1.0, 1.0],
        [1, 1, 1],
        busy_w=np.array([1e3, 2e3, 4e3]),
        waiting_w=np.array([100.0, 200.0, 400.0]),
        g_per_kwh=np.array([360.0, 360.0, 36.0]),
        cost_per_kwh=np.array([0.36, 0.36, 0.36]),
        full_power_w=100.0,
        target_accuracy=0.5,
    )


def test_what_a_prefix_spends_is_computing_and_waiting_for_its_slowest(view):
    """The second site computes 20 s and sends for 1 s, in which the first waits 11 s and the second 1 s."""
    two = view(
        [1.0, 0.5],
        [1, 1],
        busy_w=np.array([1000.0, 500.0]),
        waiting_w=np.array([100.0, 50.0]),
        comm_energy_j=7.0,
        g_per_kwh=np.array([360.0, 0.0]),
        cost_per_kwh=np.array([1.0, 1.0]),
    )
    spent = prefix_spending(two, np.array([0, 1]))
    assert spent["energy_j"].tolist() == [10_000 + 100 + 7, 10_000 + 1100 + 7 + 10_000 + 50 + 7]
    assert spent["carbon_g"] == pytest.approx([10_107e-4, 11_107e-4])
    assert spent["cost"] == pytest.approx(spent["energy_j"] / 3.6e6)
    assert own_spending(two, ENERGY).tolist() == [10_007, 10_007]


@pytest.mark.parametrize("waiting", ["idle", "released"])
def test_the_prediction_of_a_cohorts_bill_is_what_the_clock_then_charges(simulation, waiting):
    carbon = SIGNALS["daily"](mean=200.0, swing=100.0)
    rounds = simulation(world(carbon=carbon, waiting=waiting))
    draft = rounds.begin(State())
    row = rounds.row(draft, Outcome.assumed(np.zeros(len(draft.cohort))))
    predicted = prefix_spending(draft.view, draft.cohort)
    assert predicted["energy_j"][-1] == pytest.approx(row.energy_j, rel=1e-9)
    assert predicted["carbon_g"][-1] == pytest.approx(row.carbon_g, rel=1e-9)


def test_time_is_the_efficiency_and_prefers_nobody(sites):
    time = objective("time")
    assert time.merit(THREE, sites, History()) is THREE.efficiency
    assert time.preference(sites, History()) is None
    assert OBJECTIVES.default == "time"


def test_zeus_weighs_energy_against_power_times_time(sites):
    """eta 1: joules for a gain alone; 0: time alone; in between E + P_max T with P_max = 3 x 100 W."""
    assert objective("zeus", eta=1.0).merit(THREE, sites, History()).argmax() == 0
    assert objective("zeus", eta=0.0).merit(THREE, sites, History()).argmax() == 1
    half = objective("zeus", eta=0.5).merit(THREE, sites, History())
    assert half == pytest.approx(2 * THREE.gain / (THREE.energy_j + 300 * THREE.round_s))


def test_relative_gain_stops_where_time_falls_less_than_energy_rises(sites):
    """To the second: time falls by a fifth, energy doubles. Only who values a percent of energy less than a third of a
    percent of time goes there: ln 1.25 / ln 2 = 0.32."""
    assert objective("relative-gain", exchange=0.33).merit(THREE, sites, History()).argmax() == 0
    assert objective("relative-gain", exchange=0.31).merit(THREE, sites, History()).argmax() == 1
    assert objective("relative-gain", exchange=0.0).merit(THREE, sites, History()).argmax() == 1


def test_a_budget_rules_out_what_would_not_last(sites):
    """0.5 of accuracy to gain: 150 J for a unit of gain allow the first candidate, 250 J also the second, which is
    faster; with 50 J none lasts, and the most frugal is taken."""
    for budget, best in ((75.0, 0), (125.0, 1), (25.0, 0)):
        merit = objective("budget", energy=budget).merit(THREE, sites, History())
        assert merit.argmax() == best
    merit = objective("budget", energy=75.0).merit(THREE, sites, History())
    assert np.isneginf(merit).tolist() == [False, True, True]
    both = objective("budget", energy=125.0, carbon=55.0)  # grams for a unit of gain: 110
    assert both.merit(THREE, sites, History()).argmax() == 0


def test_a_cohort_that_earns_money_is_within_every_budget(sites):
    """The first costs more than a budget of 10 allows for 0.5 of accuracy, the second earns, the third is free."""
    budget = objective("budget", energy=None, cost=10.0)
    merit = budget.merit(replace(THREE, cost=np.array([50.0, -40.0, 0.0])), sites, History())
    assert merit.tolist() == [-math.inf, *THREE.efficiency[1:]]
    all_earn = budget.merit(replace(THREE, cost=np.array([-1.0, -40.0, -9.0])), sites, History())
    assert all_earn.tolist() == THREE.efficiency.tolist()


@pytest.mark.parametrize(
    ("cost", "ratios"),
    [
        ([0.02, 0.04, 0.08], [2, 2]),
        ([-0.02, -0.04, -0.08], [1, 1]),  # all earn
        ([-50.0, 0.02, 0.08], [0.02e3 / 0.08, 4]),  # the first earns: a thousandth of the median amount, 0.08
        ([0.0, 0.02, 0.08], [0.02e3 / 0.05, 4]),
    ],
)
def test_sites_are_preferred_by_cost_in_whatever_unit_money_is(cost, ratios):
    for unit in (1.0, 1e-9):
        preference = objective("budget").cost_preference(unit * np.array(cost))
        assert np.exp(-np.diff(preference)) == pytest.approx(ratios)


def test_a_deadline_rules_out_what_would_be_late(sites):
    """0.5 of accuracy in 4.5 s asks for 0.111 a second: only the second can; in 10 s all can, and the first and the
    third take the fewest grams for a gain."""
    assert objective("deadline", deadline_s=4.5).merit(THREE, sites, History()).argmax() == 1
    assert objective("deadline", deadline_s=10.0).merit(THREE, sites, History()).argmax() == 0
    assert objective("deadline", deadline_s=1.0).merit(THREE, sites, History()) is THREE.efficiency
    energy = objective("deadline", deadline_s=10.0, least="energy")
    assert energy.merit(THREE, sites, History()).argmax() == 0


@pytest.mark.parametrize(
    ("chosen", "first"),
    [
        (("time", {}), 0),  # all score the same
        (("zeus", {}), 0),
        (("relative-gain", {}), 0),
        (("deadline", {}), 2),  # 4 kW at a tenth of the grams
        (("deadline", {"site_weight": 0.0}), 0),
        (("deadline", {"least": "energy"}), 0),
        (("budget", {"carbon": 1e-3, "energy": None}), 2),
    ],
)
def test_sites_that_spend_little_come_first(sites, chosen, first):
    kind, keys = chosen
    order = objective(kind, **keys).order(np.zeros(3), sites, History())
    assert order[0] == first


@pytest.mark.parametrize("kind", ["powertrip", "highest-power", "lowest-latency", "first-back"])
def test_every_ranking_prefers_what_its_objective_prefers(sites, kind):
    assert POLICIES[kind](initial_fraction=0.1).select(sites, History(), None).cohort.tolist() == [0]
    clean = POLICIES[kind](initial_fraction=0.1, objective=objective("deadline"))
    assert clean.select(sites, History(), None).cohort.tolist() == [2]


def test_a_site_without_power_comes_last_whatever_it_costs(view):
    dark = view([0.0, 0.5], [1, 1], busy_w=np.array([0.0, 1.0]), waiting_w=np.zeros(2), full_power_w=1.0)
    policy = PowerTrip(objective=objective("zeus"))
    assert policy.select(dark, History(), None).cohort.tolist() == [1]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("time", {}),
        *(("zeus", {"eta": eta}) for eta in (0.0, 0.5, 1.0)),
        *(("relative-gain", {"exchange": exchange}) for exchange in (0.0, 1.0)),
        *(("deadline", {"least": least}) for least in ("carbon", "energy", "cost")),
        *(("budget", {"energy": None, what: 1.0}) for what in ("carbon", "energy", "cost")),
    ],
)
def test_nobody_waits_for_a_site_without_power_whatever_is_aimed_at(view, kind, keys):
    """Its round would never end, and cost endlessly much or, where waiting costs nothing, nothing."""
    dark, clocks = [[0.5, 1.0, 0.0], [0.0, 0.0, 0.0]], ["mean-power", "max-plus-max"]
    for power, clean, idle, clock, released in product(
        dark, [0.0, 36.0, -36.0], [0.0, 1.0], clocks, [False, True]
    ):
        sites = view(
            power,
            [1, 1, 1],
            busy_w=np.array(power) * 100,
            waiting_w=np.array(power) * idle,
            g_per_kwh=np.full(3, clean),
            cost_per_kwh=np.full(3, clean),
            full_power_w=100.0,
            target_accuracy=0.5,
            clock=clock,
            released=released,
        )
        policy = PowerTrip(objective=objective(kind, **keys), round_time="clock")
        order = policy.objective.order(policy.scores(sites), sites, History())
        weighed = policy.candidates(order, sites, 2, 0.01, History())
        assert not np.isnan(weighed.merit).any()
        assert order[-1] == 2 and (clock == "mean-power" or weighed.vote < 3 or not any(power))


@pytest.mark.parametrize(
    ("kind", "keys", "seen", "problem"),
    [
        ("deadline", {"least": "cost"}, {"target_accuracy": 0.5}, r"needs the signal \[price\]"),
        ("budget", {"carbon": 1.0}, {"target_accuracy": 0.5}, r"needs the signal \[carbon\]"),
        ("budget", {}, {"g_per_kwh": np.ones(1)}, r"needs a target; set stop\.target_accuracy"),
        ("deadline", {}, {"g_per_kwh": np.ones(1)}, r"needs a target; set stop\.target_accuracy"),
    ],
)
def test_an_objective_without_its_signal_or_without_a_target_is_refused(view, kind, keys, seen, problem):
    with pytest.raises(InputError, match=problem):
        objective(kind, **keys).preference(view([1.0], [1], **seen), History())


# Whole simulated runs: accuracy is assumed to rise with the rounds, as in `plan`


def world(carbon=None, seed=0, waiting="idle", price=None):
    return build_world(
        SITES["powerlaw"](num_sites=30),
        network=DistanceNetwork(),
        power=POWER_MODELS["uniform"](),
        throughput=THROUGHPUT_MODELS["curve"](gpu="A100"),
        timing=Timing(),
        seed=seed,
        accounts=Accounts(waiting=waiting),
        carbon=carbon or SIGNALS["none"](),
        price=price or SIGNALS["none"](),
    )


def ran(simulation, policy, carbon=None, stop=None, rounds=12, gain=0.04, price=None):
    """The history of a run whose accuracy rises by so much for every doubling of its samples a round."""
    runs = simulation(
        world(carbon, price=price),
        policy=policy,
        stop=stop or Stop(target_accuracy=0.9),
        num_visits=np.full(30, 600),
        shares=np.full(30, 600),
    )
    state, accuracy = State(), 0.0
    while state.round < rounds and not state.stop_reason:
        draft = runs.begin(state)
        accuracy += gain * math.log2(1 + len(draft.cohort)) / 3
        state, _ = runs.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), accuracy))
    return state


@pytest.mark.parametrize("kind", sorted(OBJECTIVES))
@pytest.mark.parametrize("policy", ["powertrip", "highest-power", "lowest-latency"])
def test_every_policy_that_weighs_can_aim_at_every_objective(simulation, policy, kind):
    carbon = SIGNALS["daily"](mean=200.0, swing=150.0)
    aimed = POLICIES[policy](objective=objective(kind))
    state = ran(simulation, aimed, carbon, rounds=4)
    last = state.history.last
    assert last.candidates.vote == last.voted_num_sites
    assert np.isfinite(last.candidates.energy_j).all() and np.isfinite(last.candidates.carbon_g).all()
    assert last.energy_j > 0 and last.carbon_g > 0


def test_the_carbon_objective_takes_less_carbon_for_the_same_accuracy(simulation):
    carbon = SIGNALS["daily"](mean=200.0, swing=180.0)
    stop = Stop(target_accuracy=0.4)
    plain = ran(simulation, PowerTrip(), carbon, stop, 60)
    green = ran(simulation, PowerTrip(objective=objective("deadline", deadline_s="4 h")), carbon, stop, 60)
    assert plain.stop_reason == green.stop_reason == "target accuracy 0.4 reached"
    assert green.history.total("carbon_g") < 0.8 * plain.history.total("carbon_g")
    assert green.clock_s < 4 * 3600


def test_an_energy_objective_takes_less_energy(simulation):
    stop = Stop(target_accuracy=0.4)
    joules = [
        ran(simulation, PowerTrip(objective=aim), None, stop, 60).history.total("energy_j")
        for aim in (objective("zeus", eta=1.0), objective("time"))
    ]
    assert joules[0] < joules[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("search", ["window", "prefix"])
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        *((kind, {}) for kind in OBJECTIVES),
        *(("zeus", {"eta": eta}) for eta in (0.0, 1.0)),
        *(("relative-gain", {"exchange": exchange}) for exchange in (0.0, 3.0)),
        ("budget", {"carbon": 1.0}),
        ("deadline", {"least": "energy"}),
    ],
)
@pytest.mark.parametrize(("power", "deadline_s"), [(0.0, 150.0), (1.0, 1.0)], ids=["darkness", "too late"])
def test_where_nobody_can_be_back_in_time_a_round_is_lost_and_not_the_run(
    simulation, steady, kind, keys, search, power, deadline_s
):
    lost = build_world(
        4,
        power=steady([power] * 4),
        faults=Faults(deadline_s=deadline_s),
        carbon=SIGNALS["constant"](per_kwh=100.0),
    )
    policy = PowerTrip(objective=objective(kind, **keys), search=search)
    state = played(simulation(lost, policy=policy, stop=Stop(target_accuracy=0.5)), 2, 0.3)
    assert [(row.num_arrived, row.makespan_s) for row in state.history.rows] == [(0, deadline_s)] * 2


def test_where_power_earns_money_a_budget_of_money_chooses_as_time_alone_would(simulation):
    price = SIGNALS["constant"](per_kwh=-0.02)
    cohorts = [
        [
            row.cohort.site.tolist()
            for row in ran(simulation, PowerTrip(objective=aim), price=price).history.rows
        ]
        for aim in (objective("time"), objective("budget", energy=None, cost=100.0))
    ]
    assert cohorts[0] == cohorts[1] and len(cohorts[0][-1]) > len(cohorts[0][0])
