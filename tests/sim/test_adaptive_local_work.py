"""Local work that follows communication and loss, and the clock that charges it."""

from dataclasses import replace

import numpy as np
import pytest

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies import POLICIES, Decision
from hpctrip.sim.policies.base import Policy
from hpctrip.sim.policies.goodput import local_work
from hpctrip.sim.rounds import History
from hpctrip.sim.step import State


@pytest.fixture
def past_rounds(history):
    """`past_rounds((loss, compute, comm), ...)`: one round of two sites for each, whose first batches had that loss and
    whose straggler took so many seconds; `local_work` is that of all."""

    def build(*rounds, local_work=1):
        plain = history(*[(2, 0, None) for _ in rounds])
        rows = []
        for row, (loss, compute_s, comm_s) in zip(plain.rows, rounds, strict=True):
            cohort = replace(row.cohort, loss_before=np.array([loss - 0.5, loss + 0.5]))
            times = {"straggler_compute_s": compute_s, "straggler_comm_s": comm_s}
            rows.append(replace(row, cohort=cohort, local_work=local_work, **times))
        return History(tuple(rows))

    return build


@pytest.mark.parametrize(
    ("compute_s", "comm_s", "expected"),
    [
        *[(10.0, 5.0, 1), (10.0, 10.0, 1), (10.0, 11.0, 2), (10.0, 160.0, 4), (10.0, 1e6, 8), (10.0, 0.0, 1)],
        # the straggler was late, or unknown
        *[(np.inf, 9.0, 1), (0.0, 9.0, 1), (np.nan, 9.0, 1), (1.0, np.nan, 1)],
    ],
)
def test_it_is_the_root_of_communication_over_compute_rounded_up_and_bounded(
    past_rounds, compute_s, comm_s, expected
):
    assert local_work(past_rounds((4.0, compute_s, comm_s)), 8) == expected
    assert local_work(History(), 8) == 1  # before anything is measured


def test_what_the_straggler_computed_counts_for_one_time_the_work(past_rounds):
    assert local_work(past_rounds((4.0, 30.0, 90.0), local_work=3), 8) == 3  # sqrt(90 / 10)
    assert local_work(past_rounds((4.0, 90.0, 90.0)), 8) == 1


def test_it_falls_with_the_root_of_the_loss_and_never_rises_above_its_beginning(past_rounds):
    """Sixteen times as long on the way as at work."""
    first = (4.0, 10.0, 160.0)
    works = [
        local_work(past_rounds(first, *[(loss, 10.0, 160.0)] * 5), 8)
        for loss in (9.0, 4.0, 2.25, 1.0, 0.25, 0.0)
    ]
    assert works == [4, 4, 3, 2, 1, 1]


def test_the_loss_now_is_that_of_the_last_five_rounds(past_rounds):
    early, late = (4.0, 10.0, 160.0), (1.0, 10.0, 160.0)
    assert local_work(past_rounds(*[early] * 6, *[late] * 5), 8) == 2
    assert local_work(past_rounds(*[early] * 6, late), 8) == 4  # 3.4 of 4


def test_rounds_without_a_loss_count_for_nothing(past_rounds):
    """Nobody arrived in the first round, or it is only planned."""
    nothing = (np.nan, 10.0, 160.0)
    assert local_work(past_rounds(nothing), 8) == 4
    assert local_work(past_rounds(nothing, (4.0, 10.0, 160.0), *[(1.0, 10.0, 160.0)] * 5), 8) == 2
    lost = past_rounds((4.0, 10.0, 160.0), (1.0, 10.0, 160.0))
    rows = [replace(row, cohort=replace(row.cohort, status=np.full(2, 3))) for row in lost.rows]
    assert local_work(History(tuple(rows)), 8) == 4


def test_goodput_weighs_cohorts_by_the_time_that_they_take_with_that_work(view, past_rounds):
    """Sites of 10 s of work: after a round that waited 160 s for 10 s of work, they will work for 40 s."""
    sites, past = view(np.ones(12), np.linspace(100, 160, 12)), past_rounds((4.0, 10.0, 160.0))
    rng = stream(0, "policy", 2)
    fixed = POLICIES["goodput"]().select(sites, past, rng)
    adaptive = POLICIES["goodput"](local_work="adaptive").select(sites, past, rng)
    assert (fixed.local_work, adaptive.local_work) == (1, 4)
    assert adaptive.candidates.round_s == pytest.approx(fixed.candidates.round_s + 30)
    alone = POLICIES["goodput"](local_work="adaptive", max_local_work=1).select(sites, past, rng)
    assert alone.local_work == 1 and alone.cohort.tolist() == fixed.cohort.tolist()


def test_the_clock_charges_the_work_and_the_samples_are_as_many(simulation):
    """200 sites of 100 s of work; a round of three times that takes 300 s, and the view stays that of one time."""
    rounds, state = simulation(), State()
    draft = rounds.draft(state, rounds.view(state), Decision(np.arange(4), local_work=3))
    assert draft.times.makespan_s == 300 and draft.work_s.tolist() == [300.0] * 200
    state, row = rounds.finish(draft, Outcome.assumed(np.zeros(4)))
    assert (row.local_work, row.num_samples, state.clock_s) == (3, 1200, 300)
    assert row.cohort.num_samples.tolist() == [300] * 4 and row.cohort.compute_s.tolist() == [300.0] * 4
    assert rounds.view(state).work_s.tolist() == [100.0] * 200


def test_more_samples_than_a_site_can_visit_are_refused(simulation):
    class Busy(Policy):
        kind = "busy"

        def select(self, sites, history, rng):
            return Decision(np.arange(4), local_work=1000)

    rounds = replace(simulation(), policy=Busy())
    assert rounds.begin(State()).decision.local_work.tolist() == [1000] * 4
    rounds = replace(rounds, num_visits=np.full(200, 100_001))
    with pytest.raises(InputError, match="1000 times the local work in round 1: 100,001,000 samples at"):
        rounds.begin(State())
