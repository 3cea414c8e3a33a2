"""What policies aim at: time, energy, carbon or money, by hand-checkable candidates and whole simulated runs."""

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.sim.energy import Accounts
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import Network
from hpctrip.sim.objectives import OBJECTIVES, own_spending
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.policies.powertrip import PowerTrip
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.stop import Stop
from hpctrip.sim.timing import Timing, prefix_spending
from hpctrip.sim.world import World

KEYS = {"deadline": {"deadline_s": 3600.0}, "budget": {"energy": 1e9}}
"""What an objective needs."""


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
    assert own_spending(two, "energy_j").tolist() == [10_007, 10_007]


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
    assert np.isneginf(objective("budget", energy=75.0).merit(THREE, sites, History())).tolist() == [
        False,
        True,
        True,
    ]
    both = objective("budget", energy=125.0, carbon=55.0)  # grams for a unit of gain: 110
    assert both.merit(THREE, sites, History()).argmax() == 0


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


@pytest.mark.parametrize("idle", [0.0, 1.0])
@pytest.mark.parametrize("clean", [0.0, 36.0])
@pytest.mark.parametrize("power", [[0.5, 1.0, 0.0], [0.0, 0.0, 0.0]])
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
def test_nobody_waits_for_a_site_without_power_whatever_is_aimed_at(view, kind, keys, power, clean, idle):
    """Its round would never end, and cost endlessly much or, where waiting costs nothing, nothing."""
    for clock, released in product(["mean-power", "max-plus-max"], [False, True]):
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
    ("kind", "keys", "table"),
    [
        ("deadline", {}, "carbon"),
        ("deadline", {"least": "cost"}, "price"),
        ("budget", {"carbon": 1.0}, "carbon"),
    ],
)
def test_what_is_not_known_cannot_be_aimed_at(view, kind, keys, table):
    blind = view([1.0], [1], target_accuracy=0.5)
    with pytest.raises(InputError, match=rf"needs the signal \[{table}\]"):
        objective(kind, **keys).preference(blind, History())


@pytest.mark.parametrize("kind", ["budget", "deadline"])
def test_without_a_target_nothing_can_last_or_be_late(view, kind):
    sites = view([1.0], [1], g_per_kwh=np.ones(1))
    with pytest.raises(InputError, match=r"needs a target; set stop\.target_accuracy"):
        objective(kind).preference(sites, History())


def test_a_budget_of_nothing_in_particular_is_refused():
    with pytest.raises(ValidationError, match="one or more of energy, carbon and cost"):
        OBJECTIVES["budget"]()


# Whole simulated runs: accuracy is assumed to rise with the rounds, as in `plan`


def world(carbon=None, seed=0, waiting="idle"):
    return World.build(
        SITES["powerlaw"](num_sites=30),
        Network(),
        POWER_MODELS["uniform"](),
        THROUGHPUT_MODELS["curve"](gpu="A100"),
        Timing(),
        0.0,
        seed,
        accounts=Accounts(waiting=waiting),
        carbon=carbon or SIGNALS["none"](),
    )


def ran(simulation, policy, carbon=None, stop=None, rounds=12, gain=0.04):
    """The history of a run whose accuracy rises by so much for every doubling of its samples a round."""
    runs = simulation(
        world(carbon),
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


# Budgets


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"max_energy": "5 kWh"}, "max_energy = 5 kWh"),
        ({"max_energy": 1.8e7}, "max_energy = 5 kWh"),
        ({"max_carbon": "1.5 kg"}, "max_carbon = 1.5 kg"),
        ({"max_carbon": 1500.0}, "max_carbon = 1.5 kg"),
        ({"max_cost": "2.50 EUR"}, "max_cost = 2.50 EUR"),
    ],
)
def test_a_budget_ends_the_run_with_the_round_that_crosses_it(simulation, budget, reason):
    """Fully powered sites for 10 s: 122.2 Wh a site and round with the default hardware."""
    sites = World.build(
        SITES["uniform"](num_sites=4, min_distance_m=0.0, max_distance_m=0.0),
        Network(update_bytes=0.0),
        POWER_MODELS["constant"](),
        THROUGHPUT_MODELS["linear"](),
        Timing(seconds_per_sample=0.1),
        0.0,
        0,
        carbon=SIGNALS["constant"](per_kwh=300.0),
        price=SIGNALS["constant"](per_kwh=0.5),
    )
    runs = simulation(sites, stop=Stop(target_accuracy=None, **budget))
    state = State()
    while not state.stop_reason:
        state, row = runs.finish(runs.begin(state), Outcome.assumed(np.zeros(4)))
    assert state.stop_reason == reason
    limit_kwh = 5.0
    before, after = (
        (state.history.total("energy_j") - row.energy_j) / 3.6e6,
        state.history.total("energy_j") / 3.6e6,
    )
    assert before < limit_kwh <= after
    assert row.energy_j / 3.6e6 == pytest.approx(4 * 44_000 * 10 / 3.6e6)


@pytest.mark.parametrize(
    ("stop", "problem"),
    [
        ({"max_carbon": "1 kg"}, r"stop.max_carbon: needs the signal \[carbon\]"),
        ({"max_cost": "1 EUR"}, r"stop.max_cost: needs the signal \[price\]"),
    ],
)
def test_a_budget_of_what_is_not_counted_is_refused(stop, problem):
    none = SIGNALS["none"]()
    with pytest.raises(InputError, match=problem):
        Stop(**stop).check(Accounts(), none, none)


def test_a_budget_in_another_currency_is_refused():
    priced = SIGNALS["constant"](per_kwh=1.0)
    Stop(max_cost="5 USD").check(Accounts(currency="USD"), priced, priced)
    with pytest.raises(InputError, match=r"costs are in EUR \(accounts.currency\)"):
        Stop(max_cost="5 USD").check(Accounts(), priced, priced)
    for text in ("5", "5 euros", "EUR 5", "-5 EUR", "nan EUR"):
        with pytest.raises(ValidationError, match="pattern"):
            Stop(max_cost=text)


# FedZero


def fedzero(view, power, history=None, seed=0, **keys):
    sites = view(power, np.ones(len(power)), g_per_kwh=np.arange(len(power), dtype=float))
    policy = POLICIES["fedzero"](**{"k": 2, "step_s": 1.0} | keys)
    return policy.select(sites, history or History(), stream(seed, "policy", 1)).cohort.tolist()


def test_fedzero_takes_the_shortest_round_in_which_enough_sites_are_back(view):
    """10 s of work: 11 s, 21 s, 13.5 s and 51 s; in rounds of whole minutes all four are back in one."""
    power = [1.0, 0.5, 0.8, 0.2]
    assert sorted(fedzero(view, power)) == [0, 2]
    assert sorted(fedzero(view, power, k=3)) == [0, 1, 2]
    assert len(fedzero(view, power, step_s=60.0)) == 2


def test_fedzero_counts_clean_power_alone(view):
    """Sites have 0, 1, 2, ... g/kWh; who is too dirty is only taken where there are not enough others."""
    power = [0.1, 0.2, 1.0, 1.0]
    assert sorted(fedzero(view, power, max_g_per_kwh=1.0)) == [0, 1]
    assert sorted(fedzero(view, power, max_g_per_kwh=0.0)) == [0, 2]
    with pytest.raises(InputError, match=r"needs the signal \[carbon\]"):
        sites = view([1.0, 1.0], [1, 1])
        POLICIES["fedzero"](k=1, max_g_per_kwh=5.0).select(sites, History(), stream(0, "policy", 1))


def test_fedzero_lets_those_rest_who_trained(simulation):
    """Ten rounds of 20 of 200 equal sites: without fairness always the same 20, with a strong one they take turns. Who
    trained once is not above the mean by more than one and goes on; who trained twice rests."""
    rounds = simulation(policy=POLICIES["fedzero"](k=20, fairness=10.0))
    state = State()
    for _ in range(10):
        draft = rounds.begin(state)
        state, _ = rounds.finish(draft, Outcome.assumed(np.zeros(20), 0.1))
    trained = np.unique(np.concatenate([row.cohort.site for row in state.history.rows]))
    assert 70 < len(trained) <= 100
    eager = simulation(policy=POLICIES["fedzero"](k=20, fairness=0.0))
    assert eager.begin(state).cohort.tolist() == list(range(20))


@pytest.mark.parametrize(("fairness", "released"), [(1.0, 1 / 3), (2.0, 1 / 9), (0.0, 1.0)])
def test_fedzero_releases_a_site_with_the_papers_probability(view, fairness, released):
    """Four rounds with one of four sites: it took part 4 times, the mean is 1, so (4 - 1)^-alpha. Released, it is the
    best: its loss is known to be as high as any."""
    row = SimpleNamespace(
        cohort=SimpleNamespace(site=np.array([0]), status=np.array([0]), train_loss=np.array([2.0]))
    )
    history = SimpleNamespace(rows=[row] * 4)
    chosen = [fedzero(view, [1.0] * 4, history, seed, k=1, fairness=fairness) == [0] for seed in range(600)]
    assert np.mean(chosen) == pytest.approx(released, abs=0.05)


def test_fedzero_prefers_sites_whose_loss_is_high(simulation):
    rounds = simulation(policy=POLICIES["fedzero"](k=200, fairness=0.0))
    draft = rounds.begin(State())
    known = Outcome.assumed(np.zeros(200), 0.1)
    losses = np.linspace(1, 2, 200)
    known = Outcome(**vars(known) | {"train_loss": losses[draft.cohort]})
    state, _ = rounds.finish(draft, known)
    picky = simulation(policy=POLICIES["fedzero"](k=3, fairness=0.0))
    assert picky.begin(state).cohort.tolist() == [199, 198, 197]
