"""Outages, lost and late updates, and the deadline, on worlds that a person can check by hand."""

import dataclasses
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from worlds import Steps, faults, links
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.series import next_step_s
from hpctrip.sim.availability.outages import ListedOutages, RandomOutages
from hpctrip.sim.bill import bill
from hpctrip.sim.faults import Faults
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing, elapsed_s

ALL = np.arange(3)
WORK_S = np.array([10.0, 20.0, 30.0])


def world(tmp_path=None, outages="", **keys):
    """Three fully powered sites with 10, 20 and 30 s of work and 1 s of communication each."""
    return build_world(3, 2e8, timing=Timing(), faults=faults(tmp_path, outages, **keys))


def timed(world, start_s=0.0, work_s=WORK_S):
    """The times of a round of all three sites."""
    return world.times(1, start_s, ALL, work_s)


def names(timing):
    return [Status(s).name for s in timing.flights.status]


def test_without_faults_everybody_arrives_and_the_slowest_sets_the_length():
    timing = timed(world())
    assert names(timing) == ["ARRIVED"] * 3 and timing.makespan_s == 31


def test_the_straggler_is_the_site_that_finished_last_not_the_one_that_computed_longest(simulation):
    slow_wan = dataclasses.replace(world(), links=links([25.0, 1.0, 1.0]))
    draft = simulation(slow_wan, num_visits=50 * WORK_S).begin(State())
    assert draft.times.straggler == 0 and draft.times.makespan_s == 35
    assert draft.times.flights.compute_s == pytest.approx(
        [10, 20, 30]
    ) and draft.times.flights.comm_s == pytest.approx([25, 1, 1])


def test_who_misses_the_deadline_costs_the_deadline_and_not_more():
    free, bound = timed(world()), timed(world(deadline_s=31.0))  # nobody misses it
    assert (free.flights.compute_s == bound.flights.compute_s).all() and free.makespan_s == bound.makespan_s
    timing = timed(world(deadline_s=25.0))
    assert names(timing) == ["ARRIVED", "ARRIVED", "LATE"]
    assert timing.makespan_s == 25 and timing.flights.compute_s == pytest.approx([10, 20, np.inf])


def test_a_site_that_goes_out_in_mid_round_goes_on_when_it_returns(tmp_path):
    pause = world(tmp_path, "0,4,9.5\n0,20,30\n", deadline_s=100.0)
    assert timed(pause).flights.compute_s == pytest.approx([15.5, 20, 30])
    short = timed(world(tmp_path, "0,4,9.5\n", deadline_s=16.0))
    assert names(short) == ["LATE", "LATE", "LATE"] and short.makespan_s == 16


def test_a_site_that_is_out_at_the_start_is_not_waited_for(simulation, tmp_path):
    out = world(tmp_path, "2,0,1000\n", deadline_s=100.0)
    draft = simulation(out, num_visits=50 * WORK_S).begin(State())
    assert names(draft.times) == ["ARRIVED", "ARRIVED", "OUT"]
    assert (draft.times.makespan_s, draft.times.straggler) == (21, 1)
    assert out.power_fraction(0.0) == pytest.approx([1, 1, 0])
    assert Profiler().view(out, 0.0, History(), WORK_S, 0).power_fraction == pytest.approx([1, 1, 0])
    assert names(timed(out, 1000.0))[2] == "ARRIVED"  # it returns at 1000


def test_a_round_that_can_reach_nobody_costs_the_deadline(tmp_path):
    dark = world(tmp_path, "0,0,50\n1,0,50\n2,0,50\n", deadline_s=40.0)
    timing = timed(dark)
    assert names(timing) == ["OUT"] * 3 and timing.makespan_s == 40


def test_lost_updates_cost_the_deadline_although_their_sites_were_quick():
    timing = timed(world(deadline_s=50.0, lost_fraction=1.0))
    assert names(timing) == ["LOST"] * 3 and timing.makespan_s == 50
    assert timing.flights.compute_s == pytest.approx([10, 20, 30])


def test_late_updates_take_longer_on_the_wan():
    timing = timed(world(late_fraction=1.0, late_s=60.0))
    assert (timing.flights.comm_s > 1).all() and timing.makespan_s == (
        timing.flights.compute_s + timing.flights.comm_s
    ).max()


def test_the_luck_of_a_site_depends_on_seed_round_and_site_alone():
    half = Faults(deadline_s=9.0, lost_fraction=0.5, late_fraction=0.5)
    (lost, extra_s), again, later = (half.wan(round, 1000, seed=1) for round in (7, 7, 8))
    assert (lost == again[0]).all() and (extra_s == again[1]).all() and (lost != later[0]).any()
    assert [lost.mean(), (extra_s > 0).mean()] == pytest.approx([0.5, 0.5], abs=0.06)


def test_random_outages_have_the_means_they_are_given():
    outages = RandomOutages(200, mtbf_s=3000.0, mttr_s=1000.0, seed=0)
    down = 1 - np.mean([outages.at(t) for t in np.arange(20_000, 120_000, 500.0)])
    assert down == pytest.approx(1000 / 4000, abs=0.02)
    assert outages.at(0.0).all()


@cache
def outages_of_streams(mtbf_s):
    """Up and down times of three sites alternate, in the order in which the streams give them."""
    chunk, end_s, starts_s, ends_s = RandomOutages.CHUNK, np.zeros((3, 1)), [], []
    for number in range(60):
        rng = stream(5, "outages", number)
        up_s, down_s = rng.exponential(mtbf_s, (3, chunk)), rng.exponential(30.0, (3, chunk))
        ends_s.append(end_s + np.cumsum(up_s + down_s, axis=1))
        starts_s.append(ends_s[-1] - down_s)
        end_s = ends_s[-1][:, -1:]
    return ListedOutages(
        3, np.repeat(ALL, 60 * chunk), np.hstack(starts_s).ravel(), np.hstack(ends_s).ravel()
    )


@given(st.lists(st.floats(0, 3e4), min_size=1, max_size=20), st.integers(1, 7))
def test_random_outages_are_those_of_their_streams_at_times_in_any_order(times, mtbf_min):
    outages, listed = RandomOutages(3, 60.0 * mtbf_min, 30.0, seed=5), outages_of_streams(60.0 * mtbf_min)
    for t in times:
        assert (outages.at(t) == listed.at(t)).all()
        assert outages.next_change_s(t) == listed.next_change_s(t)
        for sites in (ALL, ALL[:0:-1], ALL[:1]):
            here, there = (each.among(sites, t + 50) for each in (outages, listed))
            for later_s in (t, t + 25, t + 50):
                assert (here.at(later_s) == listed.at(later_s)[sites]).all()
                assert here.next_change_s(later_s) == there.next_change_s(later_s)


def test_outages_are_not_kept_without_end(monkeypatch):
    """However many one site happens to have, and whatever the seed: their mean counts, here 200 a site."""
    monkeypatch.setattr("hpctrip.sim.availability.outages.MOST_OUTAGES", 20_000)
    for seed in range(20):
        outages = RandomOutages(100, mtbf_s=60.0, mttr_s=1.0, seed=seed)
        outages.until(199 * 61.0)
        with pytest.raises(InputError, match="more than 20,000 outages of 100 sites by"):
            outages.until(201 * 61.0)


def test_a_change_of_one_site_of_the_cohort_costs_the_cohort_and_not_all_sites():
    many, cohort, asked = 10_000, np.array([5, 3, 9]), []

    class Counted(THROUGHPUT_MODELS["linear"]):
        def fraction(self, power_fraction):
            asked.append(len(power_fraction))
            return super().fraction(power_fraction)

    power = Steps(fractions=[[0.5, 0.7]] * many, step_s=5000.0)
    flaky = Faults(deadline_s=1e4, mtbf_s=60.0, mttr_s=60.0)
    world = build_world(many, timing=Timing(), power=power, throughput=Counted(), faults=flaky)
    supplied, draw_at = [], world.supply.at
    world.supply.at = lambda clock_s: supplied.append(clock_s) or draw_at(clock_s)
    asked.clear()
    times = world.times(1, 0.0, cohort, np.full(many, 2000.0))
    bill(world, times)
    assert (times.flights.status == Status.ARRIVED).all()
    assert len(asked) > 50 and set(asked) == {len(cohort)}
    assert len(supplied) <= 4  # once a step in the clock and in the bill


def test_a_round_in_which_power_changes_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("hpctrip.sim.timing.MOST_STEPS", 1000)
    with pytest.raises(InputError, match="changes more than 1,000 times in the round that starts at 5 s"):
        elapsed_s(lambda t: np.array([1e-9]), partial(next_step_s, step_s=1e-3), 5.0, np.array([1.0]))


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 50)), max_size=8),
    st.integers(0, 99),
)
def test_between_two_changes_nothing_changes(listed, at):
    site, start, length = np.array(listed, dtype=np.int64).reshape(-1, 3).T
    outages = ListedOutages(3, site, start.astype(float), (start + length).astype(float))
    until = min(outages.next_change_s(at), 200.0)
    assert until > at
    for t in np.linspace(at, until, 7, endpoint=False):
        assert (outages.at(t) == outages.at(at)).all()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("3,0,1\n", "line 2: site = '3' is not a site"),
        ("0,0,1\n0.5,0,1\n", "line 3: site = '0.5' is not a whole number"),
        ("0,5,5\n", "line 2: end_s = '5' is not after start_s"),
        (
            "0,1591728061,1591728161\n",
            "line 2: start_s = '1591728061' is later than any run: outages count from",
        ),
        ("0,-1,5\n", "line 2: start_s = '-1'"),
        ("0,x,5\n", "line 2: start_s = 'x' is not a finite number"),
    ],
)
def test_a_wrong_outage_is_named_with_its_line(tmp_path, rows, problem):
    with pytest.raises(InputError, match=problem):
        world(tmp_path, rows, deadline_s=1.0)


def test_who_would_wait_forever_is_told_so():
    for keys in ({"mtbf_s": 600.0}, {"outages": "x.csv"}, {"lost_fraction": 0.1}):
        with pytest.raises(ValidationError, match="wait forever"):
            Faults(**keys)
    with pytest.raises(ValidationError, match="exclude each other"):
        Faults(deadline_s=1.0, mtbf_s=600.0, outages="x.csv")
