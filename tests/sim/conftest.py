"""Small worlds and histories that a person can check by hand."""

import math

import numpy as np
import pytest
from worlds import Steps
from worlds import world as build_world

from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES, Decision
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import Candidates
from hpctrip.sim.step import Simulation, State
from hpctrip.sim.stop import Stop
from hpctrip.sim.view import SiteView


@pytest.fixture(scope="session")
def view():
    """`view(power, comm)`: what policies see of sites with 10 s of work each."""

    def build(power, comm, distance_m=None, update_bytes=1.5e9, **others):
        power, comm = np.array(power, dtype=float), np.array(comm, dtype=float)
        distance = np.arange(len(power)) * 1e6 if distance_m is None else np.array(distance_m, dtype=float)
        seen = {
            "power_fraction": power,
            "throughput_fraction": power,
            "comm_s": comm,
            "distance_m": distance,
            "work_s": np.full(len(power), 10.0),
            "update_bytes": update_bytes,
        }
        return SiteView(**seen | others)

    return build


@pytest.fixture(scope="session")
def steady():
    """`steady(fractions)`: the power model of sites with so much power for ever."""
    return lambda fractions: Steps(fractions=[[fraction] for fraction in fractions])


@pytest.fixture(scope="session")
def simulation():
    """`simulation(world, **others)`: rounds in that world, of 100 samples a site; by default 200 fully powered sites at
    no distance, whose rounds take 100 s."""

    def build(world=None, **others):
        world = world or build_world(200)
        parts = {
            "world": world,
            "profiler": Profiler(),
            "policy": POLICIES["all"](),
            "stop": Stop(target_accuracy=None),
            "num_visits": np.full(len(world), 100),
            "num_samples": np.full(len(world), 100),
            "label_counts": np.zeros((0, 0), np.int64),
            "shares": np.full(len(world), 100),
            "seed": 0,
        }
        return Simulation(**parts | others)

    return build


@pytest.fixture(scope="session")
def history(simulation):
    """`history((k, vote, accuracy), ...)`: rounds of 100 s each with cohorts, votes (0: none) and accuracies (None: not
    evaluated) as given."""

    def build(*rounds):
        world, state = simulation(), State()
        for k, vote, accuracy in rounds:
            one = np.ones(1)
            candidates = Candidates(np.array([vote]), one, one, one) if vote else None
            draft = world.draft(state, world.view(state), Decision(np.arange(k), candidates))
            result = math.nan if accuracy is None else accuracy
            state, _ = world.finish(draft, Outcome.assumed(np.zeros(k), result))
        return state.history

    return build
