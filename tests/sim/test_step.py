"""One round, simulated: decided, timed, weighed, recorded, over. On worlds whose numbers a person can check by hand."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import faults, sites_at
from worlds import world as build_world

from hpctrip.sim.faults import Faults
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.outcome import MEASURED, SITE_REPORTS, Outcome
from hpctrip.sim.policies import POLICIES, Decision
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.rounds import Candidates, CohortRound, RoundRow, Status
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.stop import Stop
from hpctrip.sim.timing import Timing

SAMPLES = np.array([100, 300, 600])


def world(tmp_path=None, outages="", timing=None, **keys):
    """Three sites at half power, 1 s of propagation away, with 1 s of work a sample: 100 samples take 200 s and 1 s."""
    return build_world(
        sites_at(3, 1e6),
        network=DistanceNetwork(update_bytes=0.0, propagation_m_per_s=1e6),
        power=POWER_MODELS["constant"](fraction=0.5),
        timing=timing,
        faults=faults(tmp_path, outages, **keys),
    )


@pytest.fixture
def unequal(simulation):
    """`unequal(world, **others)`: rounds of all sites of a world, which have 100, 300 and 600 samples."""

    def build(world, **others):
        return simulation(world, **{"num_visits": SAMPLES, "shares": SAMPLES} | others)

    return build


def outcome(k, **others):
    """An outcome of training: every site lost 2.0 a step in half a second, 30 of 100 samples were right."""
    result = {
        "diverged": np.zeros(k, dtype=bool),
        "train_loss": np.full(k, 2.0),
        "loss_before": np.full(k, 2.5),
        "loss_after": np.full(k, 1.5),
        "site_update_norm": np.full(k, 3.0),
        "mean_update_norm": 2.0,
        "update_cosine": 0.5,
        "train_wall_s": np.full(k, 0.5),
        "update_norm": 1.5,
        "eval_correct": 30,
        "eval_seen": 100,
        "eval_loss": 1.0,
    }
    return Outcome(**result | others)


def same(one, other):
    """Whether two rows, or parts of one, agree in every bit; NaN is NaN."""
    if isinstance(one, RoundRow | CohortRound | Candidates):
        return type(one) is type(other) and all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
        )
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    return one == other or (one != one and other != other)


# The draft


def test_updates_weigh_by_samples_or_the_same(unequal):
    draft = unequal(world()).begin(State())
    assert (
        draft.round == 1 and draft.cohort.tolist() == [0, 1, 2] and draft.times.arriving.tolist() == [0, 1, 2]
    )
    assert draft.weights.tolist() == [0.1, 0.3, 0.6]
    two = unequal(world()).draft(State(), draft.view, Decision(np.array([2, 0])))
    assert two.weights.tolist() == pytest.approx([6 / 7, 1 / 7])  # in the order of the cohort
    assert unequal(world(), shares=np.ones(3)).begin(State()).weights.tolist() == [1 / 3] * 3
    assert draft.times.makespan_s == 1201


def test_only_those_that_arrive_have_weight(unequal):
    """600 samples take 1200 s, but only 700 s are waited: the others share the round 1 to 3."""
    draft = unequal(world(deadline_s=700.0)).begin(State())
    assert draft.times.flights.status.tolist() == [Status.ARRIVED, Status.ARRIVED, Status.LATE]
    assert draft.weights.tolist() == [0.25, 0.75, 0.0] and draft.times.arriving.tolist() == [0, 1]


# The row


def test_the_clock_moves_by_the_makespan_and_the_row_says_all_about_it(unequal):
    rounds = unequal(world())
    state, row = rounds.finish(rounds.begin(State()), outcome(3))
    assert (state.round, state.clock_s, state.history.rows) == (1, 1201.0, (row,))
    assert (row.round, row.clock_start_s, row.clock_s, row.makespan_s) == (1, 0.0, 1201.0, 1201.0)
    assert (row.num_sites, row.num_arrived, row.num_samples, row.voted_num_sites) == (3, 3, 1000, 0)
    assert (row.straggler, row.straggler_compute_s, row.straggler_comm_s) == (2, 1200.0, 1.0)
    assert (row.accuracy, row.eval_correct, row.eval_seen, row.update_norm) == (0.3, 30, 100, 1.5)
    assert row.efficiency == 0.3 / 1201 and row.eval_perplexity == math.e
    assert row.cohort.compute_s.tolist() == [200, 600, 1200] and row.cohort.comm_s.tolist() == [1, 1, 1]
    # measured, and of no account where compute is modelled
    assert row.cohort.train_wall_s.tolist() == [0.5] * 3
    assert row.cohort.power_fraction.tolist() == row.cohort.seen_power_fraction.tolist() == [0.5] * 3
    state, row = rounds.finish(rounds.begin(state), outcome(3, eval_correct=40))
    assert (state.round, row.clock_start_s, row.clock_s) == (2, 1201.0, 2402.0)
    assert row.efficiency == pytest.approx(0.1 / 1201)


def test_the_training_loss_is_the_mean_over_samples(unequal):
    rounds = unequal(world())
    losses = outcome(3, train_loss=np.array([1.0, 2.0, 3.0]))
    assert rounds.row(rounds.begin(State()), losses).train_loss == pytest.approx(0.1 + 0.6 + 1.8)


def test_who_was_not_trained_has_no_loss_whatever_stands_for_it(unequal):
    rounds = unequal(world(deadline_s=700.0))
    row = rounds.row(rounds.begin(State()), outcome(3, train_loss=np.array([1.0, 2.0, 99.0])))
    assert row.num_arrived == 2 and row.cohort.num_samples.tolist() == [100, 300, 0]
    assert row.train_loss == 1.75 and np.isnan(row.cohort.train_loss).tolist() == [False, False, True]
    assert row.makespan_s == 700


def test_a_site_that_diverged_has_trained_but_not_arrived(unequal):
    rounds = unequal(world())
    diverged = np.array([False, True, False])
    losses = np.array([1.0, np.inf, 2.0])
    row = rounds.row(rounds.begin(State()), outcome(3, diverged=diverged, train_loss=losses))
    assert row.cohort.status.tolist() == [Status.ARRIVED, Status.DIVERGED, Status.ARRIVED]
    assert (row.num_arrived, row.num_samples) == (2, 1000)
    assert row.train_loss == pytest.approx((1 * 100 + 2 * 600) / 700)
    assert np.isnan(row.cohort.train_loss[1]) and row.makespan_s == 1201  # it was waited for


def test_a_round_in_which_nobody_arrives_costs_the_deadline(unequal, tmp_path):
    dark = world(tmp_path, "0,0,50\n1,0,50\n2,0,50\n", deadline_s=40.0)
    rounds = unequal(dark)
    draft = rounds.begin(State())
    assert draft.weights.tolist() == [0, 0, 0] and len(draft.times.arriving) == 0
    state, row = rounds.finish(draft, outcome(3, eval_seen=0, eval_correct=0, eval_loss=math.nan))
    assert state.clock_s == 40 and row.num_arrived == row.num_samples == 0
    assert row.cohort.status.tolist() == [Status.OUT] * 3
    assert all(map(math.isnan, (row.train_loss, row.accuracy, row.efficiency, row.eval_perplexity)))


def test_a_round_without_evaluation_does_not_break_the_gain_of_the_next(unequal):
    rounds, state = unequal(world()), State()
    for correct, seen in ((30, 100), (0, 0), (50, 100)):
        state, row = rounds.finish(rounds.begin(state), outcome(3, eval_correct=correct, eval_seen=seen))
    assert row.efficiency == pytest.approx(0.2 / 2402)
    row = rounds.row(rounds.begin(state), outcome(3, eval_loss=1e6))
    assert row.eval_perplexity == math.inf  # too large for a number


# Measured compute


def test_measured_compute_is_what_training_took(unequal):
    """At half power 3, 2 and 1 s of training are 6, 4 and 2 s; what the draft expected does not count."""
    rounds = unequal(world(timing=Timing(seconds_per_sample=1.0, compute="measured")))
    draft = rounds.begin(State())
    assert draft.times.makespan_s == 1201
    state, row = rounds.finish(draft, outcome(3, train_wall_s=np.array([3.0, 2.0, 1.0])))
    assert row.cohort.compute_s.tolist() == [6, 4, 2]
    assert (row.makespan_s, row.straggler, state.clock_s) == (7.0, 0, 7.0)
    # the next round is expected to run at the speed measured: 6 s for 1000 samples
    assert rounds.begin(state).view.work_s == pytest.approx(0.006 * SAMPLES)


# What training contributed


def test_what_is_assumed_is_an_accuracy_and_nothing_else(unequal):
    rounds = unequal(world())
    row = rounds.row(rounds.begin(State()), Outcome.assumed(np.zeros(3), accuracy=0.123456))
    assert row.accuracy == 0.123456 and row.eval_seen == 1_000_000 and row.num_arrived == 3
    assert math.isnan(row.train_loss) and math.isnan(row.update_norm) and math.isnan(row.wall_s)
    unknown = rounds.row(rounds.begin(State()), Outcome.assumed(np.zeros(3)))
    assert unknown.eval_seen == 0 and math.isnan(unknown.accuracy) and math.isnan(unknown.efficiency)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_sites=st.integers(1, 12),
    clock=st.sampled_from(["straggler", "max-plus-max", "mean-power", "aggregate-throughput"]),
    compute=st.sampled_from(["modelled", "measured"]),
    some_faults=st.booleans(),
)
def test_a_recorded_round_finished_again_is_the_same_row(
    simulation, seed, num_sites, clock, compute, some_faults
):
    rng = np.random.default_rng(seed)
    timing = Timing(seconds_per_sample=0.1, clock=clock, compute=compute)
    faulty = Faults(deadline_s=40.0, lost_fraction=0.2, late_fraction=0.2, mtbf_s=90.0)
    visits = rng.integers(1, 500, num_sites)
    rounds = simulation(
        build_world(
            SITES["powerlaw"](num_sites=num_sites),
            network=DistanceNetwork(),
            power=POWER_MODELS["uniform"](),
            throughput=THROUGHPUT_MODELS["capped"](),
            timing=timing,
            seed=seed,
            faults=faulty if some_faults and compute == "modelled" else Faults(),
        ),
        policy=POLICIES["powertrip"](),
        num_visits=visits,
        shares=visits,
        seed=seed,
    )
    state = State()
    for _ in range(3):
        draft = rounds.begin(state)
        k, seen = len(draft.cohort), int(rng.integers(2)) * 100
        result = Outcome(
            diverged=(rng.random(k) < 0.2) & (draft.times.flights.status == Status.ARRIVED),
            **{name: rng.uniform(0, 5, k) for name in SITE_REPORTS},
            mean_update_norm=float(rng.random()),
            update_cosine=float(rng.uniform(-1, 1)),
            train_wall_s=rng.uniform(0.1, 9, k),
            update_norm=float(rng.random()),
            eval_correct=int(rng.integers(seen + 1)),
            eval_seen=seen,
            eval_loss=float(rng.random()) if seen else math.nan,
            measured=dict(zip(MEASURED, rng.random(len(MEASURED)).tolist(), strict=True)),
        )
        after, row = rounds.finish(draft, result)
        again, row_again = rounds.finish(draft, Outcome.recorded(row))
        assert same(row, row_again)
        states = [(s.round, s.clock_s, s.stop_reason) for s in (after, again)]
        assert states[0] == states[1]
        state = after


# When it is over


LONG = {"target_accuracy": 0.9, "max_clock_s": 200.0, "max_wall_s": 4.0}


@pytest.mark.parametrize(
    ("rules", "rounds", "reason"),
    [
        ({"target_accuracy": 0.3}, 2, "target accuracy 0.3 reached"),
        ({"target_accuracy": None, "max_rounds": 3}, 3, "max_rounds = 3"),
        ({"target_accuracy": None, "max_clock_s": 101.0}, 2, "max_clock_s = 101"),
        ({"target_accuracy": None, "max_clock_s": 200.0}, 2, "max_clock_s = 200"),
        ({"target_accuracy": None, "max_wall_s": 5.0}, 3, "max_wall_s = 5"),
        ({"target_accuracy": "none", "max_rounds": 4}, 4, "max_rounds = 4"),
        # all at once: the accuracy comes first, then the rounds, then the clock
        (LONG | {"target_accuracy": 0.3, "max_rounds": 2}, 2, "target accuracy 0.3 reached"),
        (LONG | {"max_rounds": 2}, 2, "max_rounds = 2"),
        (LONG, 2, "max_clock_s = 200"),
    ],
)
def test_the_first_rule_to_fire_ends_the_run(rules, rounds, reason, simulation):
    """Rounds of 100 s that take 2 s to run; accuracy is 0.15, 0.3, 0.45, 0.6."""
    run, state = simulation(stop=Stop(**rules)), State()
    assert run.stop.reason(state.history) == ""  # it has not begun
    while not state.stop_reason:
        draft = run.begin(state)
        result = Outcome.assumed(np.zeros(len(draft.cohort)), 0.15 * draft.round)
        state, _ = run.finish(draft, replace(result, measured={"wall_s": 2.0}))
    assert (state.round, state.stop_reason) == (rounds, reason)
