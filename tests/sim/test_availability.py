"""Sites that wait in queues, follow events, and come and go with a signal, on worlds worked out by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Steps, faults, played, sites_at
from worlds import world as build_world

from hpctrip.base.errors import InputError
from hpctrip.base.series import Signal
from hpctrip.sim.arrivals import Buffered, Quorum, Synchronous
from hpctrip.sim.availability import AVAILABILITY, Availability, AvailabilityModel
from hpctrip.sim.availability.queues import Waits
from hpctrip.sim.faults import Faults
from hpctrip.sim.forecast import FORECASTS
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.grid.signals import GridSignal, SignalModel
from hpctrip.sim.network.distance import DistanceNetwork
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.quantities import SPENT
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import State
from hpctrip.sim.timing import prefix_round_s, prefix_spending, return_s
from hpctrip.sim.world import CohortPower


def queue(tmp_path=None, rows="", **keys):
    """A queue with these lines as its file of waits."""
    if rows:
        (tmp_path / "waits.csv").write_text(rows)
        keys["path"] = str(tmp_path / "waits.csv")
    return AVAILABILITY["queue"](**keys)


@pytest.fixture
def three(simulation):
    """`three(rounds, **availability)`: three sites with 10, 20 and 30 s of work and 1 s of communication;
    computing draws 44 kW, waiting 6.05 kW."""

    def build(rounds=None, tables=None, fate=None, sizes=(10, 20, 30), **availability):
        world = build_world(3, 2e8, availability=availability, faults=fate, **tables or {})
        parts = {"num_visits": np.array(sizes), "rounds": rounds or Synchronous()}
        return simulation(world, **parts)

    return build


def rows_of(simulated, number):
    return played(simulated, number).history.rows


# Queues


def test_a_site_computes_when_it_has_waited(three, tmp_path):
    (row,) = rows_of(three(queue=queue(tmp_path, "site,wait_s\n0,5\n1,40\n2,0\n")), 1)
    assert row.cohort.queue_s.tolist() == [5, 40, 0] and row.cohort.compute_s.tolist() == [10, 20, 30]
    assert row.clock_s == 61 and row.straggler == 1


def test_a_power_that_changes_counts_from_when_the_site_begins(three):
    falling = Steps(fractions=[[1, 0.5]] * 3, step_s=15.0)
    (row,) = rows_of(three(queue=queue(wait_s=10.0), tables={"power": falling}), 1)
    assert row.cohort.compute_s.tolist() == [15, 35, 55]  # 5 s at full power, then half


def test_a_job_in_a_queue_draws_nothing(three, tmp_path):
    plain = rows_of(three(), 1)[0].cohort
    (row,) = rows_of(three(queue=queue(tmp_path, "site,wait_s\n0,20\n1,10\n2,0\n")), 1)
    assert row.clock_s == 31 and row.cohort.compute_energy_j == pytest.approx(plain.compute_energy_j)
    assert row.cohort.wait_energy_j == pytest.approx(
        [6050, 6050, 6050]
    )  # 1 s each: without queues 21, 11 and 1


def test_a_job_that_its_deadline_finds_in_the_queue_draws_nothing_at_all(three, tmp_path):
    late = queue(tmp_path, "site,wait_s\n0,0\n1,99\n2,20\n")
    (row,) = rows_of(three(queue=late, fate=faults(deadline_s=35.0)), 1)
    assert row.cohort.status.tolist() == [Status.ARRIVED, Status.LATE, Status.LATE] and row.clock_s == 35
    assert row.cohort.compute_energy_j == pytest.approx([440e3, 0, 660e3])
    assert row.cohort.wait_energy_j[1] == row.cohort.comm_energy_j[1] == 0


@pytest.mark.parametrize("kind", [Quorum(num=3), Buffered(num=3, concurrency=3)])
def test_flights_of_every_kind_of_rounds_wait(kind, three, tmp_path):
    simulated = three(kind, queue=queue(tmp_path, "site,wait_s\n0,45\n1,5\n2,0\n"))
    (row,) = rows_of(simulated, 1)
    assert row.clock_s == 56 and row.cohort.queue_s.tolist() == [45, 5, 0] and row.straggler == 0


def test_waits_follow_from_the_time_where_the_file_has_times(three, tmp_path):
    waits = queue(tmp_path, "start_s,wait_s\n40,7\n0,3\n")
    first, second, third = rows_of(three(queue=waits), 3)
    assert [row.cohort.queue_s[0] for row in (first, second, third)] == [3, 3, 7] and second.clock_s == 68


def test_lognormal_waits_are_those_of_the_seed_the_round_and_the_site():
    drawn = [build_world(1000, availability={"queue": queue(wait_s=600.0, sigma=0.4)}) for _ in range(2)]
    every, some = np.arange(1000), np.array([7, 3])
    waits = drawn[0].queue_s(5, 0.0, every)
    assert np.log(waits).mean() == pytest.approx(np.log(600), abs=0.05)
    assert np.log(waits).std() == pytest.approx(0.4, rel=0.1)
    assert drawn[1].queue_s(5, 99.0, some).tolist() == waits[some].tolist()
    assert (drawn[1].queue_s(6, 0.0, every) != waits).all()


def test_the_expected_wait_is_half_the_last_one_and_half_what_was_expected(three, tmp_path):
    simulated = three(queue=queue(tmp_path, "site,wait_s\n0,8\n1,0\n2,40\n"))
    assert simulated.view(State()).queue_s.tolist() == [0, 0, 0]
    assert simulated.view(played(simulated, 2)).queue_s.tolist() == [6, 0, 30]
    under_way = replace(simulated, rounds=Quorum(num=1))  # site 2 waits longer than the round
    first = played(under_way, 1)
    assert first.clock_s == 19 and under_way.view(first).queue_s.tolist() == [4, 0, 0]
    assert under_way.view(played(under_way, 2)).queue_s.tolist() == [6, 0, 0]
    assert under_way.view(played(under_way, 3)).queue_s.tolist() == [7, 0, 20]  # it began at 40


@pytest.mark.parametrize("deadline_s", [None, 45.0])
def test_what_is_expected_of_a_round_is_what_it_takes_where_the_waits_are_known(three, tmp_path, deadline_s):
    fate = faults(**({} if deadline_s is None else {"deadline_s": deadline_s}))
    simulated = three(queue=queue(tmp_path, "site,wait_s\n0,5\n1,40\n2,0\n"), fate=fate)
    seen = replace(simulated.view(State()), queue_s=np.array([5.0, 40.0, 0.0]))
    (row,) = rows_of(simulated, 1)
    order = np.arange(3)
    assert prefix_round_s(seen, order, "straggler")[-1] == row.makespan_s
    assert prefix_spending(seen, order)["energy_j"][-1] == pytest.approx(row.energy_j, rel=1e-12)
    assert return_s(seen).tolist() == [16, np.inf if deadline_s else 61, 31]


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("site,wait_s\n0,1\n1,-2\n2,3\n", "line 3: wait_s = '-2' is no wait of 0 s"),
        ("site,wait_s\n0,1\n3,2\n", "line 3: site = '3' is no site from 0 to 2"),
        ("site,wait_s\n0,1\n2,2\n", "has no wait of site 1"),
        ("site,seconds\n0,1\n", "has no column 'wait_s'"),
    ],
)
def test_a_wrong_file_of_waits_is_refused_in_one_line(rows, told, three, tmp_path):
    with pytest.raises(InputError, match="slurm") as refused:
        three(slurm=queue(tmp_path, rows))
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_a_queue_has_one_source_of_waits():
    with pytest.raises(ValueError, match="either wait_s or path"):
        queue()


# Events


def events(tmp_path, rows, columns="site,start_s,duration_s,depth,notice_s", **keys):
    (tmp_path / "events.csv").write_text(f"{columns}\n{rows}")
    return AVAILABILITY["events"](path=str(tmp_path / "events.csv"), **keys)


def test_an_event_takes_its_share_of_the_power_for_as_long_as_it_lasts(three, tmp_path):
    (row,) = rows_of(three(grid=events(tmp_path, "0,4,6,0.5,0\n2,10,20,0.25,0\n")), 1)
    assert row.cohort.compute_s.tolist() == [13, 20, 35] and row.clock_s == 36
    assert row.cohort.compute_energy_j == pytest.approx([440e3, 880e3, 1320e3])


def test_times_may_be_in_other_units_that_their_names_end_in(three, tmp_path):
    kinds = [("start_s,duration_s,notice_s", "3600,7200,60"), ("start_min,duration_h,notice_min", "60,2,1")]
    parts = [
        three(grid=events(tmp_path, f"0,{row},0.5\n", f"site,{names},depth")).world.availability[-1]
        for names, row in kinds
    ]
    times_s = [(part.start_s, part.end_s, part.announced_s) for part in parts]
    assert times_s[0] == times_s[1] == (3600.0, 10800.0, 3540.0)
    waits = queue(tmp_path, "wait_min,start_d\n1,0\n2,1\n")
    world = three(queue=waits).world
    assert [world.queue_s(1, start_s, np.arange(1)) for start_s in (0.0, 86400.0)] == [60.0, 120.0]
    with pytest.raises(InputError, match="has the columns duration_s and duration_h; give one of them"):
        three(grid=events(tmp_path, "0,0,1,1\n", "site,start_s,duration_s,duration_h"))
    with pytest.raises(InputError, match="line 2: duration_h = '0' is not above 0"):
        three(grid=events(tmp_path, "0,0,0\n", "site,start_s,duration_h"))


def test_of_events_that_overlap_the_deepest_counts_and_tables_multiply(three, tmp_path):
    (tmp_path / "a").mkdir()
    once = events(tmp_path, "0,0,10,0.5,0\n0,5,10,0.2,0\n")
    more = events(tmp_path / "a", "0,8,100,0.5,0\n")
    world = three(one=once, two=more).world
    shares = [world.available(clock_s)[0] for clock_s in (0.0, 5.0, 9.0, 10.0, 15.0)]
    assert shares == pytest.approx([0.5, 0.5, 0.25, 0.4, 0.5]) and world.available(6.0)[1:].tolist() == [1, 1]


def test_a_site_is_out_during_an_event_of_depth_1_and_no_deadline_is_needed(three, tmp_path):
    out = events(tmp_path, "0,5,20\n1,0,15\n", "site,start_s,duration_s")
    first, second = rows_of(three(grid=out), 2)
    assert first.cohort.status.tolist() == [Status.ARRIVED, Status.OUT, Status.ARRIVED]
    assert first.cohort.compute_s.tolist() == [30, np.inf, 30] and first.clock_s == 31  # 20 s without power
    assert (second.cohort.status == Status.ARRIVED).all()


@pytest.mark.parametrize("kind", [Synchronous(), Quorum(num=1), Buffered(num=1, concurrency=3)])
@pytest.mark.parametrize(("deadline_s", "length_s"), [(None, 15), (12.0, 12)])
def test_a_round_in_which_nobody_can_be_asked_ends_as_soon_as_one_can(
    kind, deadline_s, length_s, three, tmp_path
):
    fate = faults(**({} if deadline_s is None else {"deadline_s": deadline_s}))
    out = events(tmp_path, "0,0,40\n1,0,15\n2,0,30\n", "site,start_s,duration_s")
    row, *_ = rows_of(three(kind, grid=out, fate=fate), 1)
    assert row.clock_s == length_s and (row.cohort.status == Status.OUT).all()


def test_without_availability_such_a_round_lasts_until_the_deadline(three, tmp_path):
    (row,) = rows_of(three(fate=faults(tmp_path, "0,0,5\n1,0,5\n2,0,5\n", deadline_s=50.0)), 1)
    assert row.clock_s == 50


def test_where_no_site_can_ever_be_asked_the_run_ends_in_one_line(three, tmp_path):
    for_ever = events(tmp_path, "0,0,1e9\n1,0,1e9\n2,0,1e9\n", "site,start_s,duration_s")
    with pytest.raises(InputError, match="no site may train from 0 s on"):
        rows_of(three(grid=for_ever), 1)


def test_policies_know_an_event_from_its_announcement_on(three, tmp_path):
    simulated = three(grid=events(tmp_path, "0,70,50,0.5,40\n1,200,10,1,199\n"))
    first, second = simulated.view(State()), simulated.view(played(simulated, 1))
    assert np.isinf(first.available_s).all()
    assert second.clock_s == 31 and second.available_s.tolist() == [39, 169, np.inf]


def test_the_believed_power_is_that_of_the_coming_round_as_far_as_it_is_announced(three, tmp_path):
    """A round has computed for 30 s; of the next 30 s, from 31 to 61, the event takes half in the last 10."""
    simulated = three(grid=events(tmp_path, "0,51,50,0.5,20\n1,51,50,0.5,19\n"))
    assert simulated.view(played(simulated, 1)).power_fraction == pytest.approx([25 / 30, 1, 1])
    oracle = replace(simulated, forecast=FORECASTS["oracle"]())
    assert oracle.view(played(oracle, 1)).power_fraction[1] < 1


def test_an_event_may_be_that_of_a_group_of_sites_and_have_a_date(tmp_path):
    placed = tmp_path / "sites.csv"
    placed.write_text("name,distance_km,group\nOslo,1,north\nRome,2,south\n7,3,north\n")
    (tmp_path / "carbon.csv").write_text("time,g_per_kwh\n2026-01-01 00:00,1\n2026-01-01 01:00,1\n")
    carbon = SIGNALS["csv"](path=str(tmp_path / "carbon.csv"), value_column="g_per_kwh").resolve()
    dated = events(tmp_path, "north,2026-01-01T00:10,60,0.5\n", "group,start,duration_s,depth")
    world = build_world(SITES["csv"](path=str(placed)), carbon=carbon, availability={"grid": dated})
    assert world.available(599.0).tolist() == [1, 1, 1] and world.available(600.0).tolist() == [0.5, 1, 0.5]
    assert world.available(660.0).tolist() == [1, 1, 1]
    assert CohortPower(world, np.array([1, 2]), 1e9).at(600.0).tolist() == [1, 0.5]
    named = events(
        tmp_path,
        "Rome,2026-01-01T01:10,60\n7,2026-01-01T01:10,60\n",
        "site,start,duration_s",
        timezone="Europe/Rome",
    )
    world = build_world(SITES["csv"](path=str(placed)), carbon=carbon, availability={"grid": named})
    assert world.available(600.0).tolist() == [1, 0, 0]
    for row, told in {
        "Rme,2026-01-01,9\nRome,2026-01-01,9": "site = 'Rme' is no site; did you mean 'Rome'",
        "Rme,2026-01-01,9": "line 2: site = 'Rme' is no site; did you mean 'Rome'",
        "Rome,2025-12-31T23:00,9": "before the start of the simulated time; it begins at 2026-01-01T00:00:00 UTC",
    }.items():
        wrong = events(tmp_path, row, "site,start,duration_s")
        with pytest.raises(InputError, match=told):
            build_world(SITES["csv"](path=str(placed)), carbon=carbon, availability={"grid": wrong})


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("0,-5,10,1,0\n", "line 2: start_s = '-5' is before the start of the simulated time"),
        ("0,5,10,1,0\n3,5,10,1,0\n", "line 3: site = '3' is no site from 0 to 2"),
        ("0,5,0,1,0\n", "duration_s = '0' is not above 0"),
        ("0,5,10,1.5,0\n", "depth = '1.5' is not above 0 and at most 1"),
        ("0,5,10,1,-1\n", "notice_s = '-1' is below 0"),
        ("0,2e9,10,1,0\n", "start_s = '2e9' is later than any run; dates are in a column start"),
    ],
)
def test_a_wrong_event_is_refused_in_one_line(rows, told, three, tmp_path):
    with pytest.raises(InputError, match="grid") as refused:
        three(grid=events(tmp_path, rows))
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_an_unknown_group_and_a_date_without_a_calendar_are_refused(three, tmp_path):
    with pytest.raises(InputError, match="group = 'north' is no group of the sites"):
        three(grid=events(tmp_path, "north,5,10\n", "group,start_s,duration_s"))
    with pytest.raises(InputError, match="no date at which simulated time begins"):
        three(grid=events(tmp_path, "0,2026-01-01,10\n", "site,start,duration_s"))


# Windows


class Zones(SignalModel):
    """A zone for each site, with these values over steps of so many seconds, again and again."""

    values: list[list[float]]
    step_s: float

    def signal(self, table, sites, num_sites, seed):
        times_s, period_s = (
            self.step_s * np.arange(len(self.values[0])),
            self.step_s * len(self.values[0]),
        )
        series = [Signal(times_s, np.array(values), period_s) for values in self.values]
        return GridSignal([str(zone) for zone in range(num_sites)], series, np.arange(num_sites), False)


def window(**keys):
    return AVAILABILITY["window"](**{"below": 100.0} | keys)


GOOD, BAD = 50.0, 150.0


def carbon(*values, step_s=10.0):
    return {"carbon": Zones(values=[list(row) for row in values], step_s=step_s)}


def provisioned(world, until_s, site=0):
    """The times at which a site is provisioned (+) and can train, and is released (-), in steps of 0.5 s."""
    times_s = np.arange(0, until_s, 0.5)
    ready = [world.available(time_s)[site] > 0 for time_s in times_s]
    changes = np.flatnonzero(np.diff(ready, prepend=False))
    return [time_s if ready[at] else -time_s for at, time_s in zip(changes, times_s[changes], strict=True)]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({}, [10, -30, 40, -60, 70]),
        ({"provision_s": 4.0}, [14, -30, 44, -60, 74]),
        ({"provision_s": 4.0, "hold_s": 3.0}, [14, -33, 44, -63, 74]),
        ({"provision_s": 4.0, "hold_s": 10.0}, [14]),  # the mark is withdrawn
        ({"provision_s": 25.0}, []),
        ({"below": None, "above": 100.0}, [0, -10, 30, -40, 60, -70]),
        ({"between": "linear"}, [5, -25, 35, -55, 65]),
        ({"between": "linear", "below": 125.0}, [2.5, -27.5, 32.5, -57.5, 62.5]),
    ],
)
def test_a_site_is_provisioned_and_released_with_the_signal(keys, told, three):
    simulated = three(tables=carbon(*[[BAD, GOOD, GOOD]] * 3), dc=window(release="now", **keys))
    assert provisioned(simulated.world, 80) == told


def test_power_opens_the_windows_of_each_site(three):
    steps = {"power": Steps(fractions=[[1.0, 0.4, 0.6], [0.3, 0.3, 0.8], [1.0, 1.0, 1.0]], step_s=10.0)}
    spare = window(signal="power", above=0.5, below=None, release="now", provision_s=2.0)
    world = three(tables=steps, dc=spare).world
    assert [provisioned(world, 50, site) for site in range(3)] == [[2, -10, 22], [22], [2]]


def test_a_site_is_released_when_a_round_ends(three):
    """Its window closes at 20, 25 s before the round does, and opens at 100 again."""
    values = [GOOD, GOOD] + [BAD] * 8
    simulated = three(
        tables=carbon(values, [GOOD] * 10, values), sizes=(44, 10, 10), dc=window(provision_s=5.0)
    )
    first, second, third = rows_of(simulated, 3)
    assert (first.clock_s, set(first.cohort.status)) == (5, {Status.OUT})  # all are being provisioned
    assert second.clock_s == 50 and set(second.cohort.status) == {Status.ARRIVED}
    assert third.cohort.status.tolist() == [Status.OUT, Status.ARRIVED, Status.OUT] and third.clock_s == 61
    state = played(simulated, 6)
    world = simulated.world.after(state.history)
    assert state.clock_s == 94 and provisioned(world, 200) == [5, -50, 105]


def test_a_site_that_is_under_way_is_released_at_the_end_of_a_later_round(three):
    values = [GOOD, GOOD] + [BAD] * 18
    simulated = three(Quorum(num=1), tables=carbon(*[values] * 3), sizes=(10, 40, 60), dc=window(hold_s=5.0))
    rows = rows_of(simulated, 4)
    assert [row.clock_s for row in rows] == [11, 22, 33, 41]  # at 33 site 0 is released, at 41 site 1 is back
    assert rows[3].num_arrived == 1 and rows[3].cohort.site.tolist() == [0, 1, 2]
    world = simulated.world.after(played(simulated, 5).history)
    assert [provisioned(world, 150, site) for site in range(3)] == [[0, -33], [0, -41], [0, -61]]


def test_a_mark_is_withdrawn_when_the_signal_comes_back_during_a_round(three):
    values = [GOOD, GOOD, BAD, GOOD, GOOD, BAD, BAD, BAD]
    simulated = three(tables=carbon(*[values] * 3), sizes=(34, 34, 34), dc=window(provision_s=5.0))
    first, second, third = rows_of(simulated, 3)
    assert (first.clock_s, second.clock_s, third.clock_s) == (5, 40, 75)
    assert provisioned(simulated.world.after(played(simulated, 3).history), 90) == [5, -75, 85]


def test_a_site_that_is_cut_off_goes_on_when_it_is_provisioned_again(three):
    values = [GOOD, BAD, GOOD, GOOD, GOOD, GOOD]
    simulated = three(tables=carbon(values, *[[GOOD] * 6] * 2), dc=window(release="now", provision_s=3.0))
    first, second = rows_of(simulated, 2)
    assert first.clock_s == 3 and second.cohort.compute_s.tolist() == [23, 20, 30]  # 3 to 10, and 23 to 26
    assert second.cohort.compute_energy_j[0] == pytest.approx(440e3)
    assert second.cohort.wait_energy_j[0] == pytest.approx(6050 * (3 + 8))  # 20 to 23, and 26 to 34
    assert first.idle.wait_energy_j == pytest.approx([6050 * 3] * 3) and second.idle is None


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    hold_s=st.sampled_from([0.0, 7.0, 90.0]),
    provision_s=st.sampled_from([0.0, 40.0]),
    wait_s=st.sampled_from([0.0, 25.0]),
    deadline_s=st.sampled_from([None, 170.0]),
)
def test_an_announced_release_in_the_middle_of_a_round_is_predicted_as_it_is_charged(
    steady, data, hold_s, provision_s, wait_s, deadline_s
):
    """At constant power, whatever the number of windows in which a site has to work."""
    values = [
        [GOOD, *data.draw(st.lists(st.sampled_from([GOOD, BAD]), min_size=5, max_size=5))] for _ in "abcd"
    ]
    clean = window(release="now", hold_s=hold_s, provision_s=provision_s, notice_s=1e4)
    simulated = build_world(
        sites_at(4, 1e6),
        power=steady(np.array(data.draw(st.lists(st.floats(0.1, 1), min_size=4, max_size=4)))),
        network=DistanceNetwork(update_bytes=1e8, aggregator_bandwidth_bps=1e9),
        faults=Faults(deadline_s=deadline_s),
        availability={"dc": clean, "half": window(release="now", notice_s=1e4, below=120.0)},
        **carbon(*values, step_s=30.0),
    )
    work_s = np.array(data.draw(st.lists(st.floats(0.1, 300), min_size=4, max_size=4)))
    view = Profiler().view(simulated, 50.0, History(), work_s, 0)
    view = replace(view, queue_s=np.full(4, wait_s))
    order = data.draw(st.permutations(np.flatnonzero(view.throughput_fraction > 0).tolist()))
    waits = Waits(4, 0, np.zeros(1, np.int64), np.array([[np.nan, wait_s]]), 0.0)
    charging = replace(simulated, availability=(*simulated.availability, waits))
    charged = [charging.times(1, 50.0, np.array(order[:k]), work_s) for k in range(1, len(order) + 1)]
    lengths_s = [times.makespan_s for times in charged]
    if order:
        assert prefix_round_s(view, np.array(order), "straggler") == pytest.approx(lengths_s, rel=1e-12)


def test_what_is_announced_does_not_depend_on_how_far_the_signal_was_looked_at(three):
    """The mark of site 0 at 20 is known at 15, its release at 45 follows; another zone changes in between."""
    values = [[GOOD, GOOD, BAD, BAD, BAD, BAD, GOOD, GOOD], [GOOD, GOOD, GOOD, BAD, GOOD, BAD, GOOD, GOOD]]
    clean = window(release="now", hold_s=25.0, notice_s=5.0)
    first, later = (three(tables=carbon(*values, values[0]), dc=clean).world for _ in "ab")
    later.available(75.0)  # as `resume` would not
    assert first.available_s(15.0).tolist() == later.available_s(15.0).tolist() == [30, np.inf, 30]
    assert first.pauses_s(15.0).tolist() == [[[30, np.inf, 30], [30, np.inf, 30]]]


def test_a_predicted_release_takes_no_energy(three):
    """The round of the test above: site 0 computes from 3 to 10 and from 23 to 26. That it waits from 20 on, while it
    is provisioned, is not foreseen."""
    values = [GOOD, BAD, GOOD, GOOD, GOOD, GOOD]
    clean = window(release="now", provision_s=3.0, notice_s=60.0)
    simulated = three(tables=carbon(values, *[[GOOD] * 6] * 2), dc=clean)
    _, second = rows_of(simulated, 2)
    view = simulated.view(played(simulated, 1))
    assert prefix_round_s(view, np.arange(3), "straggler") == pytest.approx([24, 24, 31])
    assert prefix_spending(view, np.arange(3))["energy_j"][-1] == pytest.approx(second.energy_j - 6050 * 3)


def test_provisioning_and_waiting_without_work_draw_idle_power(three):
    """Site 0 may train from 14 on, site 1 never waits, site 2 is not chosen: k = 2."""
    values = [[BAD, GOOD, GOOD, GOOD, BAD, BAD], [GOOD] * 6, [GOOD, GOOD, GOOD, BAD, BAD, BAD]]
    simulated = three(tables=carbon(*values), dc=window(provision_s=4.0))
    simulated = replace(simulated, policy=POLICIES["static"](k=2))
    first, second, third = rows_of(simulated, 3)
    assert told_idle(first) == {1: (0, 4), 2: (0, 4)} and first.clock_s == 4
    assert told_idle(second) == {0: (10, 15), 2: (4, 21)} and second.clock_s == 25
    assert told_idle(third) == {2: (25, 21)} and third.clock_s == 46
    assert second.idle.wait_energy_j == pytest.approx([6050 * 15, 6050 * 21])
    assert second.energy_j == second.cohort.energy_j.sum() + second.idle.energy_j.sum()
    assert told_idle(rows_of(simulated, 4)[3]) == {2: (60, 7)}  # it was released at 46


def told_idle(row):
    """{site: (start, seconds)} of the idle sites of a round."""
    if row.idle is None:
        return {}
    assert set(row.idle.status) == {Status.IDLE}
    times = zip(row.idle.start_s, row.idle.comm_s, strict=True)
    return dict(zip(row.idle.site.tolist(), times, strict=True))


KINDS = [Synchronous(), Quorum(num=1), Buffered(num=1, concurrency=2), Buffered(num=3, concurrency=3)]


@settings(max_examples=30, deadline=None)
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    release=st.sampled_from(["round", "now"]),
    between=st.sampled_from(["steps", "linear"]),
    hold_s=st.sampled_from([0.0, 7.0]),
    provision_s=st.sampled_from([0.0, 4.0]),
)
def test_the_bills_of_rounds_are_those_of_the_sites(
    simulation, data, kind, release, between, hold_s, provision_s
):
    """What each site draws, second by second: queued nothing, computing, waiting, provisioned without work, released
    nothing."""
    draw = lambda low, high, size: data.draw(st.lists(st.floats(low, high), min_size=size, max_size=size))  # noqa: E731
    values = [[50.0, *draw(50, 150, 5)] for _ in range(3)]
    keys = {"release": release, "between": between, "hold_s": hold_s, "provision_s": provision_s}
    models = {"dc": window(**keys), "slurm": queue(wait_s=5.0, sigma=0.5)}
    power = Steps(fractions=[draw(0.2, 1, 4) for _ in range(3)], step_s=25.0)
    world = build_world(3, 2e8, power=power, availability=models, **carbon(*values, step_s=20.0))
    simulated = simulation(world, num_visits=np.array([10, 20, 30]), rounds=kind)
    rows, final = (state := played(simulated, 8)).history.rows, world.after(state.history)
    flights, edges = [], {0.0, state.clock_s}
    for row in rows:
        edges |= {row.clock_s}
        for at in np.flatnonzero(row.cohort.status != Status.OUT):
            times = [getattr(row.cohort, name)[at] for name in ("start_s", "queue_s", "compute_s")]
            ends_s = row.clock_s if row.cohort.status[at] != Status.UNDER_WAY else np.inf
            flights.append((row.cohort.site[at], times[0], *np.cumsum(times)[1:], ends_s))
            edges |= {*np.cumsum(times).tolist()}
    now_s = 0.0
    while now_s < state.clock_s:
        now_s = min(part.next_change_s(now_s) for part in (final.supply, *final.availability))
        edges |= {now_s}
    expected = np.zeros((2, 3))
    edges = sorted(edge for edge in edges if edge <= state.clock_s)
    for begin_s, end_s in pairwise(edges):
        at_s, full = (begin_s + end_s) / 2, final.supplied((begin_s + end_s) / 2)
        is_on, power_now = final.availability[0].since_s(at_s) <= at_s, final.power_fraction(at_s)
        busy_w, waiting_w = final.hardware.draw_w(power_now)[0], final.hardware.draw_w(full)[1] * is_on
        for site in range(3):
            own = [flight for flight in flights if flight[0] == site and flight[1] <= at_s < flight[4]]
            _, _, starts_s, computed_s, _ = max(own, default=(0, 0, 0, 0, 0), key=lambda flight: flight[1])
            if own and at_s < starts_s:
                continue
            computes = bool(own) and at_s < computed_s and power_now[site] > 0
            watts = busy_w[site] if computes else waiting_w[site]
            expected[int(not computes), site] += watts * (end_s - begin_s)
    for name, joules in zip(("compute_energy_j", "wait_energy_j"), expected, strict=True):
        assert state.history.total_by_site(name, 3) == pytest.approx(joules, rel=1e-12, abs=1e-6), name
    for name in SPENT:
        if name != "cost":
            total = sum(getattr(row, name) for row in rows)
            assert state.history.total_by_site(name, 3).sum() == pytest.approx(total, rel=1e-12)


# Policies, and work that fits into a time


def test_while_clean_asks_every_idle_site_whose_window_is_open(three):
    values = [[GOOD] * 4, [GOOD, BAD, BAD, BAD], [GOOD] * 4]
    simulated = three(Quorum(num=1), tables=carbon(*values), dc=window())
    simulated = replace(simulated, policy=POLICIES["while-clean"]())
    asked = [simulated.decide(simulated.view(state := played(simulated, n)), state.history) for n in range(3)]
    assert [decision.cohort.tolist() for decision in asked] == [[0, 1, 2], [0], [0]]
    nobody = three(tables=carbon(*[[BAD, GOOD]] * 3), dc=window())
    nobody = replace(nobody, policy=POLICIES["while-clean"]())
    assert rows_of(nobody, 1)[0].cohort.site.tolist() == [0, 1, 2]


def test_fedqueue_asks_of_each_site_what_fits_after_its_wait(three, tmp_path):
    policy = POLICIES["fedqueue"](round_s=400.0, margin_s=60.0, least_work=3)
    simulated = three(queue=queue(tmp_path, "site,wait_s\n0,0\n1,200\n2,999\n"), sizes=(10, 20, 30))
    simulated = replace(simulated, policy=policy, rounds=Quorum(num=9, longest_s=460.0))
    first, second = rows_of(simulated, 2)
    assert first.cohort.local_work.tolist() == [34, 17, 11]  # 340 s of 10, 20, 30
    assert first.clock_s == 460 and first.cohort.status.tolist() == [Status.ARRIVED] + [Status.UNDER_WAY] * 2
    assert second.cohort.local_work[0] == 34 and second.cohort.site.tolist() == [0, 1, 2]
    third = simulated.begin(
        played(simulated, 2)
    ).decision  # 100 s are expected at site 1; site 2 is under way
    assert third.local_work.tolist()[:2] == [34, 12]


@pytest.mark.parametrize("longest_s", [5.0, 12.0, 25.0, 99.0])
def test_a_round_is_no_longer_than_its_longest_but_has_an_update(three, longest_s):
    (row,) = rows_of(three(Quorum(num=3, longest_s=longest_s)), 1)
    expected = {5.0: (11, 1), 12.0: (12, 1), 25.0: (25, 2), 99.0: (31, 3)}
    assert (row.clock_s, row.num_arrived) == expected[longest_s]


@pytest.mark.parametrize("kind", [Synchronous, Quorum])
def test_sites_train_what_fits_into_a_time(kind, three):
    power = {"power": Steps(fractions=[[1.0], [0.5], [1.0]])}
    (row,) = rows_of(three(kind(work_s=85.0), tables=power), 1)
    assert row.cohort.local_work.tolist() == [8, 2, 2] and row.cohort.compute_s.tolist() == [80, 80, 60]
    assert rows_of(three(kind(work_s=1.0)), 1)[0].cohort.local_work.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="exclude each other"):
        kind(work_s=1.0, work_by_speed=2)


def test_updates_weigh_by_the_samples_that_they_have_processed(three):
    simulated = replace(three(Synchronous(work_s=65.0)), shares=np.array([10, 20, 30]), weighs_work=True)
    (row,) = rows_of(simulated, 1)
    assert row.cohort.num_samples.tolist() == [60, 60, 60] and row.cohort.weight == pytest.approx([1 / 3] * 3)


# Bad input


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"below": 10.0}, r"availability.dc.below = 10: no window ever opens"),
        ({"signal": "price"}, r"availability.dc.signal: needs the signal \[price\]; set price.kind"),
        (
            {"signal": "power", "above": 2.0, "below": None},
            r"availability.dc.above = 2: no window ever opens",
        ),
    ],
)
def test_a_window_that_never_opens_is_refused_in_one_line(keys, told, three):
    with pytest.raises(InputError, match=told):
        three(tables=carbon(*[[BAD, GOOD]] * 3), dc=window(**keys))


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"below": None}, "either below or above"),
        ({"above": 1.0}, "either below or above"),
        ({"signal": "power", "between": "linear"}, "constant between its changes"),
        ({"hold_s": -1.0}, "greater than or equal to 0"),
    ],
)
def test_keys_of_a_window_that_contradict_each_other_are_refused(keys, told):
    with pytest.raises(ValueError, match=told):
        window(**keys)


def test_an_availability_of_a_plug_in_is_checked(three):
    class Broken(AvailabilityModel):
        def availability(self, place, around):
            part = Availability(around.num_sites)
            part.at = lambda clock_s: np.full(around.num_sites, 2.0)
            return part

    with pytest.raises(InputError, match=r"availability.own: .*shares"):
        three(own=Broken())
