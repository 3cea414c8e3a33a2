"""Budgets of a site: who has spent one has no power to give from then on, and a run ends when nobody is left."""

import numpy as np
import pytest
from pydantic import ValidationError

from hpctrip.base.errors import InputError
from hpctrip.sim.energy import Accounts
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import Network
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import Status
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.stop import Stop
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World

CONSTANT = SIGNALS["constant"]


def runs_of(simulation, policy, samples=(10, 20, 40, 80), profiler=None, **accounts):
    """Fully powered sites of 1 kW that send nothing: a second, and a kilojoule, a sample. 3.6 g and 3.6 EUR a kWh, so
    that a kilojoule is a milligram and a tenth of a cent."""
    world = World.build(
        SITES["uniform"](num_sites=len(samples), min_distance_m=0.0, max_distance_m=0.0),
        Network(update_bytes=0.0),
        POWER_MODELS["constant"](),
        THROUGHPUT_MODELS["linear"](num_gpus=10, gpu_power_w=100.0, idle_w=0.0, pue=1.0),
        Timing(seconds_per_sample=1.0),
        0.0,
        0,
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


def run(runs):
    """The state after its last round."""
    state = State()
    while not state.stop_reason:
        draft = runs.begin(state)
        state, _ = runs.finish(draft, Outcome.assumed(np.zeros(len(draft.cohort)), 0.1))
    return state


ALL = POLICIES["all"]()


@pytest.mark.parametrize(
    ("key", "budget", "said"),
    [
        ("site_max_energy", "90 kJ", "90 kJ"),
        ("site_max_carbon", "0.09 g", "0.09 g"),
        ("site_max_cost", "0.09 EUR", "0.09 EUR"),
    ],
)
def test_a_site_that_has_spent_its_budget_takes_no_part_any_more(simulation, key, budget, said):
    """Sites spend 10, 20, 40 and 80 kJ a round: they last 9, 5, 3 and 2 rounds."""
    state = run(runs_of(simulation, ALL, **{key: budget}))
    asked = np.array([row.cohort.status != Status.OUT for row in state.history.rows])
    assert asked.sum(axis=0).tolist() == [9, 5, 3, 2]
    assert (np.diff(asked.astype(int), axis=0) <= 0).all()
    assert [row.makespan_s for row in state.history.rows] == [80, 80, 40, 20, 20, 10, 10, 10, 10]
    assert state.stop_reason == f"nobody left to ask: {key} = {said}"
    last = state.history.last.cohort
    assert last.power_fraction.tolist() == [1, 0, 0, 0] and last.num_samples.tolist() == [10, 0, 0, 0]
    assert last.energy_j.tolist() == [10_000, 0, 0, 0]


def test_the_first_of_several_budgets_counts(simulation):
    state = run(runs_of(simulation, ALL, site_max_energy="1 MJ", site_max_carbon="0.09 g"))
    assert state.round == 9
    assert state.stop_reason == "nobody left to ask: site_max_energy = 1 MJ, site_max_carbon = 0.09 g"


def test_a_fixed_cohort_ends_its_run_though_others_have_budgets_left(simulation):
    state = run(runs_of(simulation, POLICIES["static"](k=1), samples=[40] * 4, site_max_energy="90 kJ"))
    assert state.round == 3 and state.stop_reason.startswith("nobody left to ask")


def test_a_ranking_moves_on_to_sites_that_have_budgets_left(simulation):
    policy = POLICIES["highest-power"](k=1)
    state = run(runs_of(simulation, policy, samples=[40] * 4, site_max_energy="90 kJ"))
    chosen = [int(row.cohort.site[0]) for row in state.history.rows]
    assert sorted(chosen) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert all((row.cohort.status == Status.ARRIVED).all() for row in state.history.rows)


def test_noise_and_old_observations_do_not_bring_a_site_back(simulation):
    noisy = Profiler(power_noise=0.5, smoothing=0.9)
    runs = runs_of(simulation, ALL, profiler=noisy, site_max_energy="90 kJ")
    state = State()
    for _ in range(4):
        draft = runs.begin(state)
        state, _ = runs.finish(draft, Outcome.assumed(np.zeros(4), 0.1))
    assert runs.view(state).power_fraction[2:].tolist() == [0, 0]


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_every_policy_goes_on_without_them_until_it_ends(simulation, kind):
    samples = [40] if kind == "centralized" else [40] * 12
    keys = {"k": 4} if "k" in POLICIES[kind].model_fields else {}
    state = run(runs_of(simulation, POLICIES[kind](**keys), samples=samples, site_max_energy="130 kJ"))
    spent = state.history.total_by_site("energy_j", len(samples))
    assert state.stop_reason.startswith("nobody left to ask") and spent.max() == 160_000
    assert all(row.num_arrived for row in state.history.rows)


def test_without_budgets_nobody_is_ever_spent(simulation):
    runs = runs_of(simulation, ALL)
    assert runs.world.after(run(runs).history) is runs.world


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"site_max_carbon": "1 kg"}, r"accounts.site_max_carbon: needs the signal \[carbon\]"),
        ({"site_max_cost": "1 EUR"}, r"accounts.site_max_cost: needs the signal \[price\]"),
    ],
)
def test_a_budget_of_what_is_not_counted_is_refused(keys, problem):
    with pytest.raises(InputError, match=problem):
        Accounts(**keys).check(SIGNALS["none"](), SIGNALS["none"]())


def test_a_budget_in_another_currency_is_refused():
    with pytest.raises(InputError, match=r"site_max_cost = '5 USD': costs are in EUR"):
        Accounts(site_max_cost="5 USD").check(CONSTANT(per_kwh=1.0), CONSTANT(per_kwh=1.0))
    with pytest.raises(ValidationError, match="pattern"):
        Accounts(site_max_cost="5")
