"""Rounds that leave flights under way: who starts and arrives when, and what it costs, on worlds checked by hand."""

import runpy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import Grouped, Steps, faults, links, matrix
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.base.units import GB, J_PER_KWH
from hpctrip.sim.arrivals import ROUNDS, SYNCHRONOUS, Buffered, Quorum, Synchronous
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.matrix import MatrixNetwork
from hpctrip.sim.network import DistanceNetwork
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.policies.base import Decision
from hpctrip.sim.quantities import SPENT
from hpctrip.sim.rounds import LastSeen, Status
from hpctrip.sim.step import State
from hpctrip.sim.timing import Timing


def kind(name, **keys):
    """A kind of rounds of the plug-in."""
    kinds = {"DelayedByOne": "delayed by one", "AsTheyCome": "as they come"}
    if kinds[name] not in ROUNDS:  # another test may have run the plug-in
        runpy.run_path(str(Path(__file__).parents[1] / "delayed.py"))
    return ROUNDS[kinds[name]](**keys)


def rounds(simulated, number):
    """The rows of the first rounds, and the state after them."""
    state = State()
    for _ in range(number):
        draft = simulated.begin(state)
        state, _ = simulated.finish(draft, Outcome.assumed(np.ones(len(draft.cohort)), 0.5))
    return state.history.rows, state


def told(row):
    """{(site, round in which it started): fate} of a round's flights."""
    flights = zip(row.cohort.site.tolist(), row.round - row.cohort.age, row.cohort.status, strict=True)
    return {(site, start): Status(status).name for site, start, status in flights}


@pytest.fixture
def three(simulation):
    """`three(rounds, ...)`: rounds of three sites, with 10, 20 and 30 s of work and 1 s of communication."""

    def build(rounds, **others):
        world = build_world(3, 2e8, timing=Timing(seconds_per_sample=1.0))
        return simulation(replace(world, **others), num_visits=np.array([10, 20, 30]), rounds=rounds)

    return build


def test_an_update_that_is_delayed_by_one_arrives_one_round_after_its_start(three):
    (first, second, third), _ = rounds(three(kind("DelayedByOne")), 3)
    assert told(first) == {(0, 1): "UNDER_WAY", (1, 1): "UNDER_WAY", (2, 1): "UNDER_WAY"}
    assert first.makespan_s == 11 and (first.num_sites, first.num_arrived, first.num_samples) == (3, 0, 0)
    assert told(second) == {(0, 1): "ARRIVED", (1, 1): "ARRIVED", (2, 1): "ARRIVED"}  # nobody was idle
    assert second.clock_s == 31 and (second.num_arrived, second.num_samples) == (3, 60)
    assert second.cohort.age.tolist() == [1, 1, 1] and second.cohort.start_s.tolist() == [0, 0, 0]
    assert second.cohort.weight == pytest.approx([1 / 3] * 3) and first.cohort.weight.tolist() == [0, 0, 0]
    assert told(third).keys() == {(0, 3), (1, 3), (2, 3)} and third.cohort.start_s.tolist() == [31, 31, 31]


def test_a_site_that_is_back_starts_again_but_once_in_a_round(three):
    (first, second), _ = rounds(three(kind("AsTheyCome", num=2)), 2)
    assert told(first) == {(0, 1): "ARRIVED", (1, 1): "ARRIVED", (2, 1): "UNDER_WAY"}
    assert first.clock_s == 21  # site 0 was back at 11, but has trained this model
    assert told(second) == {(0, 2): "ARRIVED", (1, 2): "UNDER_WAY", (2, 2): "UNDER_WAY", (2, 1): "ARRIVED"}
    assert second.clock_s == 32 and second.straggler == 0
    assert second.cohort.start_s.tolist() == [21, 21, 31, 0]


def test_the_weights_of_old_updates_are_lowered(three):
    _, second = rounds(three(kind("DelayedByOne", fading=1.0)), 2)[0]
    assert second.cohort.weight == pytest.approx([1 / 6] * 3)


def test_the_noise_is_that_of_whole_weights_only(three):
    """Its estimate is that of a mean."""

    def noise(**keys):
        simulated = three(kind("DelayedByOne", **keys))
        _, state = rounds(simulated, 1)
        outcome = Outcome.assumed(np.ones(3), 0.5)
        norms = np.array([1.0, 2.0, 3.0])
        row = simulated.row(
            simulated.begin(state), replace(outcome, site_update_norm=norms, mean_update_norm=1.0)
        )
        return row.update_noise

    assert noise() > 0 and np.isnan(noise(fading=1.0))


def test_of_two_updates_of_a_site_in_a_round_the_newer_one_is_the_last_seen(three):
    simulated = three(kind("AsTheyCome", num=2))
    _, state = rounds(simulated, 2)
    longer = replace(simulated, rounds=kind("AsTheyCome", num=4))
    draft = longer.begin(state)
    outcome = replace(Outcome.assumed(np.ones(len(draft.cohort)), 0.5), train_loss=np.arange(5.0))
    row = longer.row(draft, outcome)
    assert told(row)[1, 2] == told(row)[1, 3] == "ARRIVED" and row.cohort.site.tolist() == [0, 1, 2, 1, 2]
    assert LastSeen.of(state.history.appended(row), 3).loss[1] == 1.0


def test_rounds_that_begin_with_simultaneous_events_are_not_empty(three):
    """Of three sites that are back at one moment, one is received after two others."""
    world = build_world(3, 2e8, timing=Timing(seconds_per_sample=1.0))
    simulated = replace(three(kind("AsTheyCome", num=2)), world=world, num_visits=np.full(3, 10))
    first, second, third = rounds(simulated, 3)[0]
    assert (first.clock_s, first.num_arrived) == (11, 2)
    assert second.num_arrived == 2 and told(second)[2, 1] == "ARRIVED"
    assert second.makespan_s == third.makespan_s == 11


def test_the_policy_sees_who_is_idle(three):
    simulated = three(kind("AsTheyCome", num=1))
    assert simulated.view(State()).idle.tolist() == [True] * 3
    assert simulated.view(rounds(simulated, 1)[1]).idle.tolist() == [True, False, False]


def test_transfers_pass_the_shared_link_in_the_order_in_which_they_begin(three):
    narrow = DistanceNetwork(update_bytes=15.0, aggregator_bandwidth_bps=8.0)  # an update takes 15 s
    others = {"links": links([1.0, 1.0, 1.0], narrow), "update_bytes": 15.0}
    first, second = rounds(three(kind("AsTheyCome", num=2), **others), 2)[0]
    assert first.cohort.comm_s.tolist() == [
        15,
        20,
        25,
    ]  # the second waits from 20 to 25, the third from 30 to 40
    assert first.clock_s == 40 and first.link_free_s == 55
    assert told(second)[2, 1] == "ARRIVED" and second.cohort.comm_s[-1] == 25
    assert second.cohort.comm_s[0] == 20  # begins at 50, behind the one that holds the link until 55


def test_a_regions_uplink_serves_transfers_in_the_order_in_which_they_begin(simulation, tmp_path):
    """1 GB takes 20 s from region 1 and 10 s from region 2. Sites 0 and 3 are at home and end the first rounds, at 7,
    14, 21 and 28 s, while the others are under way."""
    rows = "0,0,0,8 1,0,0,0.4 2,0,0,0.8"
    shared = matrix(tmp_path, rows, shared_uplinks=True, update_bytes=1e9)
    world = build_world(Grouped(num_sites=6), network=shared, timing=Timing(seconds_per_sample=1.0))
    visits = np.array([5, 10, 30, 6, 12, 33])
    simulated = simulation(world, num_visits=visits, rounds=Buffered(num=2, concurrency=6))
    played, _ = rounds(simulated, 9)
    assert [row.clock_s for row in played[:4]] == [7, 14, 21, 28]
    flights = {}  # (site, start): (when it has computed, when its update is there)
    for row in played:
        for site, start_s, compute_s, comm_s, free_s in zip(
            *(
                getattr(row.cohort, name)
                for name in ("site", "start_s", "compute_s", "comm_s", "uplink_free_s")
            ),
            strict=True,
        ):
            flights[int(site), float(start_s)] = start_s + compute_s, start_s + compute_s + comm_s
            assert np.isnan(comm_s) or site % 3 == 0 or free_s == start_s + compute_s + comm_s
    assert flights[1, 0] == (10, 30) and flights[4, 0] == (12, 50)  # 4 waits for 1
    assert flights[2, 0] == (30, 40) and flights[5, 0] == (33, 50)  # another uplink
    assert flights[1, 30] == (40, 70)  # and 1 for 4, whose transfer has begun four rounds before


def test_a_transfer_leaves_the_queue_of_an_uplink_with_the_bandwidth_of_the_moment(simulation, tmp_path):
    """8 Gbit from 10 s on: 4 by 0.4 Gbit/s, 4 by 0.8; the second begins then."""
    lines = [
        "time_s,from,to,rtt_ms,bandwidth_gbps",
        "0,1,0,0,0.4",
        "20,1,0,0,0.8",
        "1000,1,0,0,0.8",
        "0,0,0,0,8",
    ]
    (tmp_path / "links.csv").write_text("\n".join([*lines, "0,2,0,0,8"]))
    keys = {
        "path": str(tmp_path / "links.csv"),
        "aggregator": "0",
        "shared_uplinks": True,
        "update_bytes": 1e9,
    }
    network = MatrixNetwork(**keys)
    world = build_world(Grouped(num_sites=5), network=network, timing=Timing(seconds_per_sample=1.0))
    visits = np.array([90, 10, 90, 90, 12])
    (first,), _ = rounds(simulation(world, num_visits=visits, rounds=Quorum(num=2)), 1)
    assert first.cohort.comm_s[[1, 4]].tolist() == [15, 23] and first.clock_s == 35


def test_who_is_out_does_not_start_and_who_is_late_is_given_up_when_its_own_time_is_over(three, tmp_path):
    out = faults(tmp_path, "0,0,5\n", deadline_s=25.0)
    others = {"faults": out, "availability": out.availability(3, 0)}
    first, second = rounds(three(kind("DelayedByOne"), **others), 2)[0]
    assert told(first) == {(0, 1): "OUT", (1, 1): "UNDER_WAY", (2, 1): "UNDER_WAY"} and first.clock_s == 21
    assert told(second) == {(0, 2): "UNDER_WAY", (1, 1): "ARRIVED", (2, 1): "LATE"}
    assert second.clock_s == 25 and second.cohort.weight.tolist() == [0, 1, 0]


def test_a_round_in_which_nobody_can_start_lasts_until_the_deadline(three, tmp_path):
    out = faults(tmp_path, "0,0,5\n1,0,5\n2,0,5\n", deadline_s=25.0)
    others = {"faults": out, "availability": out.availability(3, 0)}
    first, second = rounds(three(kind("DelayedByOne"), **others), 2)[0]
    assert first.makespan_s == 25 and set(told(first).values()) == {"OUT"}
    assert set(told(second).values()) == {"UNDER_WAY"}


# Rounds with a quorum


def test_a_quorum_ends_a_round_and_the_others_count_where_they_come(three):
    first, second = rounds(three(Quorum(num=2)), 2)[0]
    assert told(first) == {(0, 1): "ARRIVED", (1, 1): "ARRIVED", (2, 1): "UNDER_WAY"} and first.clock_s == 21
    assert told(second) == {(0, 2): "ARRIVED", (1, 2): "ARRIVED", (2, 1): "ARRIVED"}
    assert second.clock_s == 42 and second.num_arrived == 3  # site 2 was back at 31, and is none of the two
    assert second.cohort.weight == pytest.approx([1 / 3, 1 / 3, 1 / 3 / np.sqrt(2)])


@pytest.mark.parametrize(
    ("grace_s", "clock_s", "arrived"), [(0.0, 11, 1), (5.0, 16, 1), (10.0, 21, 2), (99.0, 31, 3)]
)
def test_a_quorum_waits_a_while_for_the_others_but_no_longer_than_for_the_last(
    grace_s, clock_s, arrived, three
):
    (first,), _ = rounds(three(Quorum(num=1, grace_s=grace_s)), 1)
    assert (first.clock_s, first.num_arrived) == (clock_s, arrived)


def test_updates_that_do_not_arrive_are_none_of_a_quorum(three, tmp_path):
    late = faults(tmp_path, "", deadline_s=15.0)
    first, second = rounds(three(Quorum(num=2), faults=late), 2)[0]
    assert told(first) == {(0, 1): "ARRIVED", (1, 1): "LATE", (2, 1): "LATE"} and first.clock_s == 15
    assert second.num_arrived == 1


def test_without_an_idle_site_a_round_ends_with_the_first_update(three):
    simulated = three(Quorum(num=1))
    _, state = rounds(simulated, 1)
    draft = simulated.draft(state, simulated.view(state), Decision(np.array([2, 1])))
    assert (
        draft.cohort.tolist() == [1, 2] and draft.times.end_s == 21 and draft.times.arriving.tolist() == [0]
    )


def test_an_update_that_too_many_rounds_have_overtaken_is_given_up(three):
    _, second = rounds(three(Quorum(num=2, max_staleness=0)), 2)[0]
    assert told(second)[2, 1] == "TOO_OLD" and second.cohort.weight.tolist() == [0.5, 0.5, 0]
    assert told(rounds(three(Quorum(num=2, max_staleness=1)), 2)[0][1])[2, 1] == "ARRIVED"


def test_a_grace_beyond_the_deadline_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"rounds.grace_s = 25: is not below faults.deadline_s = 25"):
        Quorum(grace_s=25.0).check(Timing(), faults(tmp_path, "", deadline_s=25.0))


# Local work by speed


@pytest.mark.parametrize("rounds_kind", [Synchronous, Quorum])
def test_sites_work_as_much_as_they_can_while_the_fastest_does_its_work(rounds_kind, three):
    (row,), _ = rounds(three(rounds_kind(work_by_speed=6)), 1)
    assert row.cohort.local_work.tolist() == [6, 3, 2] and row.cohort.compute_s.tolist() == [60, 60, 60]
    assert row.cohort.num_samples.tolist() == [60, 60, 60] and row.local_work == 6


def test_a_site_with_half_its_power_works_half_as_long_and_at_least_once(three):
    simulated = three(
        Synchronous(work_by_speed=4), supply=Steps(fractions=[[0.5], [1.0], [0.01]]).supply(3, 0)
    )
    (row,), _ = rounds(simulated, 1)
    assert row.cohort.local_work.tolist() == [2, 2, 1]


# Buffered rounds


def test_a_buffered_round_ends_with_every_update_where_one_is_enough(three):
    first, second, third = rounds(three(Buffered(num=1, concurrency=2)), 3)[0]
    assert told(first) == {(0, 1): "ARRIVED", (1, 1): "UNDER_WAY"} and first.clock_s == 11
    assert told(second) == {(0, 2): "UNDER_WAY", (1, 1): "ARRIVED"} and second.clock_s == 21
    assert told(third) == {(1, 3): "UNDER_WAY", (0, 2): "ARRIVED"} and third.clock_s == 22
    assert [row.cohort.weight.sum() for row in (first, second, third)] == pytest.approx(
        [1, 0.5**0.5, 0.5**0.5]
    )


def test_the_place_of_a_site_that_is_back_is_taken_by_the_next_of_the_order(three):
    (first,), _ = rounds(three(Buffered(num=2, concurrency=2)), 1)
    assert told(first) == {(0, 1): "ARRIVED", (1, 1): "ARRIVED", (2, 1): "UNDER_WAY"}
    assert first.cohort.start_s.tolist() == [0, 0, 11] and first.clock_s == 21


def test_a_buffer_that_cannot_fill_ends_with_the_last_update(three):
    (first,), _ = rounds(three(Buffered(num=9, concurrency=9)), 1)
    assert first.num_arrived == 3 and first.clock_s == 31


def test_a_buffer_beyond_the_concurrency_is_refused():
    with pytest.raises(ValueError, match="num = 3 is above concurrency = 2"):
        Buffered(num=3, concurrency=2)


def test_to_a_policy_a_site_under_way_has_no_power(three):
    simulated = three(Buffered(num=1, concurrency=3))
    view = simulated.view(rounds(simulated, 1)[1])
    assert view.of_idle().power_fraction.tolist() == [1, 0, 0] and view.power_fraction.tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "keys",
    [
        {"clock": "mean-power"},
        {"clock": "aggregate-throughput"},
        {"clock": "max-plus-max"},
        {"compute": "measured"},
    ],
    ids=lambda keys: "".join(keys.values()),
)
def test_a_flight_needs_a_time_of_its_own(keys):
    with pytest.raises(InputError) as refused:
        kind("DelayedByOne").check(Timing(**keys), Faults())
    ((key, value),) = keys.items()
    assert f'{key} = "{value}"' in str(refused.value) and "delayed by one" in str(refused.value)
    SYNCHRONOUS.check(Timing(**keys), Faults())


# What flights cost


def drawn(world, flight, free_s, step_s):
    """{column: amount} of one flight over its whole life, summed over the steps between all times at which something
    may change; `free_s` is when the site has done with it."""
    up_s = flight["start_s"] + world.deadline_s
    computed_s = min(flight["start_s"] + flight["compute_s"], up_s)
    sent_s = min(flight["start_s"] + flight["compute_s"] + np.nan_to_num(flight["comm_s"], nan=np.inf), up_s)
    until_s = free_s if world.accounts.waiting == "idle" else min(sent_s, free_s)
    computed_s, until_s = min(computed_s, free_s), max(until_s, min(computed_s, free_s))
    changes = [start for part in world.availability for start in (*part.start_s, *part.end_s)]
    edges = [flight["start_s"], computed_s, until_s, *changes, *np.arange(0, until_s + step_s, step_s)]
    edges = np.unique([edge for edge in edges if flight["start_s"] <= edge <= until_s])
    total, site = dict.fromkeys(SPENT, 0.0), int(flight["site"])
    for begin_s, end_s in pairwise(edges):
        middle_s = (begin_s + end_s) / 2
        power = world.power_fraction(flight["start_s"] if world.timing.power == "frozen" else middle_s)
        busy_w, waiting_w = (watts[site] for watts in world.hardware.draw_w(power))
        name, watts = ("compute", busy_w) if middle_s < computed_s else ("wait", waiting_w)
        joules = watts * (end_s - begin_s)
        total[f"{name}_energy_j"] += joules
        total["carbon_g"] += joules / J_PER_KWH * world.signals["carbon"].at(middle_s)[site]
    if flight["start_s"] + flight["compute_s"] <= min(free_s, up_s):
        total["comm_energy_j"] = world.comm_energy_j
        at_s = flight["start_s"] + flight["compute_s"]
        total["carbon_g"] += world.comm_energy_j / J_PER_KWH * world.signals["carbon"].at(at_s)[site]
    return total


@given(
    fractions=st.lists(st.lists(st.floats(0.05, 1), min_size=8, max_size=8), min_size=3, max_size=3),
    name=st.sampled_from(["DelayedByOne", "AsTheyCome"]),
    waiting=st.sampled_from(["idle", "released"]),
    power=st.sampled_from(["integrated", "frozen"]),
    deadline_s=st.sampled_from([None, 40.0, 170.0]),
    link_s=st.sampled_from([0.0, 7.0]),
    outages=st.lists(st.tuples(st.integers(0, 2), st.floats(0, 200), st.floats(1, 50)), max_size=4),
)
def test_energy_over_rounds_is_energy_over_flights(
    simulation, tmp_path_factory, fractions, name, waiting, power, deadline_s, link_s, outages
):
    lines = "".join(f"{site},{start:.3f},{start + length:.3f}\n" for site, start, length in outages)
    keys = {} if deadline_s is None else {"deadline_s": deadline_s}
    fate = faults(
        tmp_path_factory.mktemp("outages"), lines if keys else "", **keys, lost_fraction=0.2 * bool(keys)
    )
    network = DistanceNetwork(update_bytes=GB, aggregator_bandwidth_bps=8 * GB / link_s if link_s else None)
    world = build_world(
        3,
        power=Steps(fractions=fractions, step_s=25.0),
        timing=Timing(seconds_per_sample=1.0, power=power),
        network=network,
        accounts=Accounts(waiting=waiting),
        carbon=SIGNALS["daily"](mean=300.0),
        faults=fate,
    )
    world = replace(world, links=links([1.0, 2.0, 3.0], network))
    simulated = simulation(world, num_visits=np.array([10, 20, 30]), rounds=kind(name))
    rows, _ = rounds(simulated, 8)
    billed, lives = {}, {}
    for row in rows:
        for at, key in enumerate(
            zip(row.cohort.site.tolist(), (row.round - row.cohort.age).tolist(), strict=True)
        ):
            amounts = {column: getattr(row.cohort, column)[at] for column in SPENT}
            before = billed.setdefault(key, dict.fromkeys(SPENT, 0.0))
            billed[key] = {column: before[column] + amounts[column] for column in SPENT}
            flight = {
                c: getattr(row.cohort, c)[at] for c in ("site", "start_s", "compute_s", "comm_s", "status")
            }
            lives[key] = flight | {"free_s": row.clock_s}
    for (site, started), flight in lives.items():
        if flight["status"] == Status.OUT:
            assert sum(billed[site, started][c] for c in SPENT if c != "cost") == 0
            continue
        again = [f["start_s"] for (s, r), f in lives.items() if s == site and r > started]
        free_s = min([flight["free_s"], *again])
        expected = drawn(world, flight, free_s, 25.0)
        for column in ("compute_energy_j", "wait_energy_j", "comm_energy_j", "carbon_g"):
            assert billed[site, started][column] == pytest.approx(expected[column], rel=1e-12, abs=1e-9), (
                column
            )
