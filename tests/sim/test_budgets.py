"""Budgets of a run, which end it, and of its sites, which have no power any more once they have spent theirs."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from worlds import played
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.sim.energy import Accounts
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import Status
from hpctrip.sim.stop import Stop

CONSTANT = SIGNALS["constant"]


def runs_of(simulation, policy, samples=(10, 20, 40, 80), profiler=None, **accounts):
    """Fully powered sites of 1 kW that send nothing: a second, and a kilojoule, a sample. 3.6 g and 3.6 EUR a kWh, so
    that a kilojoule is a milligram and a tenth of a cent."""
    world = build_world(
        len(samples),
        throughput=THROUGHPUT_MODELS["linear"](num_gpus=10, gpu_power_w=100.0, idle_w=0.0, pue=1.0),
        accounts=Accounts(waiting="released", **accounts),
        carbon=CONSTANT(per_kwh=3.6),
        price=CONSTANT(per_kwh=3.6),
    )
    return simulation(
        world,
        policy=policy,
        profiler=profiler or Profiler(),
        stop=Stop(target_accuracy=None, max_rounds=60),
        num_visits=np.array(samples),
        shares=np.array(samples),
    )


ALL = POLICIES["all"]()


@pytest.mark.parametrize(
    ("key", "budget", "text"),
    [
        ("site_max_energy", "90 kJ", "90 kJ"),
        ("site_max_carbon", "0.09 g", "0.09 g"),
        ("site_max_cost", "0.09 EUR", "0.09 EUR"),
    ],
)
def test_a_site_that_has_spent_its_budget_takes_no_part_any_more(simulation, key, budget, text):
    """Sites spend 10, 20, 40 and 80 kJ a round: they last 9, 5, 3 and 2 rounds."""
    state = played(runs_of(simulation, ALL, **{key: budget}))
    asked = np.array([row.cohort.status != Status.OUT for row in state.history.rows])
    assert asked.sum(axis=0).tolist() == [9, 5, 3, 2]
    assert (np.diff(asked.astype(int), axis=0) <= 0).all()
    assert [row.makespan_s for row in state.history.rows] == [80, 80, 40, 20, 20, 10, 10, 10, 10]
    assert state.stop_reason == f"nobody left to ask: {key} = {text}"
    last = state.history.last.cohort
    assert last.power_fraction.tolist() == [1, 0, 0, 0] and last.num_samples.tolist() == [10, 0, 0, 0]
    assert last.energy_j.tolist() == [10_000, 0, 0, 0]


def test_the_first_of_several_budgets_counts(simulation):
    state = played(runs_of(simulation, ALL, site_max_energy="1 MJ", site_max_carbon="0.09 g"))
    assert state.round == 9
    assert state.stop_reason == "nobody left to ask: site_max_energy = 1 MJ, site_max_carbon = 0.09 g"


def test_a_fixed_cohort_ends_its_run_though_others_have_budgets_left(simulation):
    state = played(runs_of(simulation, POLICIES["static"](k=1), samples=[40] * 4, site_max_energy="90 kJ"))
    assert state.round == 3 and state.stop_reason.startswith("nobody left to ask")


def test_a_ranking_moves_on_to_sites_that_have_budgets_left(simulation):
    policy = POLICIES["highest-power"](k=1)
    state = played(runs_of(simulation, policy, samples=[40] * 4, site_max_energy="90 kJ"))
    chosen = [int(row.cohort.site[0]) for row in state.history.rows]
    assert sorted(chosen) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert all((row.cohort.status == Status.ARRIVED).all() for row in state.history.rows)


def test_noise_and_old_observations_do_not_bring_a_site_back(simulation):
    noisy = Profiler(power_noise=0.5, smoothing=0.9)
    runs = runs_of(simulation, ALL, profiler=noisy, site_max_energy="90 kJ")
    state = played(runs, 4)
    assert runs.view(state).power_fraction[2:].tolist() == [0, 0]


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_every_policy_goes_on_without_them_until_it_ends(simulation, kind):
    samples = [40] if kind == "centralized" else [40] * 12
    keys = {"k": 4} if "k" in POLICIES[kind].model_fields else {}
    keys |= {"round_s": 61.0, "least_work": 1} if kind == "fedqueue" else {}  # as much work as the others
    state = played(runs_of(simulation, POLICIES[kind](**keys), samples=samples, site_max_energy="130 kJ"))
    spent = state.history.total_by_site("energy_j", len(samples))
    assert state.stop_reason.startswith("nobody left to ask") and spent.max() == 160_000
    assert all(row.num_arrived for row in state.history.rows)


def test_without_budgets_nobody_is_ever_spent(simulation):
    runs = runs_of(simulation, ALL)
    assert runs.world.after(played(runs).history) is runs.world


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"max_energy": "5 kWh"}, "max_energy = 5 kWh"),
        ({"max_energy": 1.8e7}, "max_energy = 5 kWh"),
        ({"max_carbon": "18 g"}, "max_carbon = 18 g"),
        ({"max_carbon": 18.0}, "max_carbon = 18 g"),
        ({"max_cost": "18.00 EUR"}, "max_cost = 18.00 EUR"),
    ],
)
def test_a_budget_ends_the_run_with_the_round_that_crosses_it(simulation, budget, reason):
    """Four sites of 440 kJ: 10 rounds take 17.6 MJ, and 11 more than 5 kWh."""
    runs = runs_of(simulation, ALL, samples=[440] * 4)
    state = played(replace(runs, stop=Stop(target_accuracy=None, **budget)))
    assert (state.round, state.stop_reason) == (11, reason)
    assert state.history.last.energy_j == pytest.approx(1.76e6)


NONE, PRICED = SIGNALS["none"](), CONSTANT(per_kwh=1.0)


@pytest.mark.parametrize(
    ("amount", "end", "table"), [("1 kg", "carbon", "carbon"), ("1 EUR", "cost", "price")]
)
def test_a_budget_of_what_is_not_counted_is_refused(amount, end, table):
    with pytest.raises(InputError, match=rf"stop.max_{end}: needs the signal \[{table}\]"):
        Accounts().check({"carbon": NONE, "price": NONE}, Stop(**{f"max_{end}": amount}).budgets)
    with pytest.raises(InputError, match=rf"accounts.site_max_{end}: needs the signal \[{table}\]"):
        Accounts(**{f"site_max_{end}": amount}).check({"carbon": NONE, "price": NONE})


def test_a_budget_in_another_currency_is_refused():
    Accounts(currency="USD").check({"carbon": PRICED, "price": PRICED}, Stop(max_cost="5 USD").budgets)
    with pytest.raises(InputError, match=r"site_max_cost = '5 USD': costs are in EUR"):
        Accounts(site_max_cost="5 USD").check({"carbon": PRICED, "price": PRICED})


@pytest.mark.parametrize("text", ["5", "5 euros", "EUR 5", "-5 EUR", "nan EUR"])
def test_a_sum_has_a_number_and_a_currency(text):
    for component, key in ((Stop, "max_cost"), (Accounts, "site_max_cost")):
        with pytest.raises(ValidationError, match="pattern"):
            component(**{key: text})
