"""The bill of a round: the energy, carbon and money that its flights and idle sites spend within it. Shapes: N
sites, f flights, i idle sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice, takewhile

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.series import spans
from hpctrip.base.units import J_PER_KWH
from hpctrip.sim.flights import Flights, RoundTimes
from hpctrip.sim.quantities import BY_SIGNAL, SPENT
from hpctrip.sim.rounds import Status
from hpctrip.sim.timing import MOST_STEPS
from hpctrip.sim.world import CohortPower, World


def bill(world: World, times: RoundTimes) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Energy, carbon and cost of a round: {column of `SPENT`: amounts of its flights [f]}, NaN where the grid signal is
    not set; and {column of `CohortRound`: values [i]} of the sites that are provisioned by their windows for a while
    and have no flight: site, start_s of the first such while, comm_s with the seconds, and amounts. The power that is
    drawn is integrated over the same changes as the clock's.

    A site computes until it is done, its deadline passes or the round ends; then its update travels. All of the
    network's energy counts when the transfer begins, with the site's intensity and price at that time. A site that
    waits does so until the end of the round in which its update arrives, or until it starts again. A site that is
    provisioned waits, too, until it starts; a job in a queue draws nothing.
    """
    end_s, flights = times.end_s, _with_idle(world, times)
    is_idle, has_windows = flights.status == Status.IDLE, world.has_windows
    begin_s, computed_s, until_s, sent_j = _intervals(world, times, flights)
    sites, of_site = flights.site, slice(None)
    if _may_repeat(world, times):
        sites, of_site = np.unique(sites, return_inverse=True)
    supplied = CohortPower(world, sites, max(end_s, times.start_s + world.deadline_s))
    changes = {table: signal.next_change_s for table, signal in world.signals.items()}
    if frozen := world.timing.power == "frozen":
        power = _at_starts(supplied, flights.start_s, of_site)
    if not frozen or has_windows:
        changes["power"] = supplied.next_change_s
    sums = {name: np.zeros(len(flights)) for name in SPENT}
    idle_s, since_s = np.zeros(len(flights)), np.full(len(flights), np.inf)
    between = spans(times.start_s, lambda clock_s: min(change_s(clock_s) for change_s in changes.values()))
    for now_s, span_end_s, at_s in islice(between, MOST_STEPS):
        last = span_end_s >= end_s
        until = end_s if last else span_end_s
        if not frozen:
            power = supplied.at(at_s)[of_site]
        busy_w, waiting_w = world.hardware.draw_w(power, flights.site)
        computes_s = _overlap_s(now_s, until, begin_s, computed_s)
        waits_s = _overlap_s(now_s, until, computed_s, until_s)
        if has_windows:
            is_on, full = supplied.is_provisioned(at_s)[of_site], supplied.at(at_s, provisioned=True)[of_site]
            is_paused = is_on & (power == 0) & (full > 0)  # it is being provisioned again
            waits_s = np.where(is_on, waits_s, 0.0) + np.where(is_paused, computes_s, 0.0)
            waiting_w = world.hardware.draw_w(full, flights.site)[1]
            idle_s += np.where(is_idle, waits_s, 0.0)
            since_s = np.where(waits_s > 0, np.minimum(since_s, now_s), since_s)
        begins_to_send = (computed_s >= now_s) & (last | (computed_s < until))
        joules = {
            "compute_energy_j": busy_w * computes_s,
            "wait_energy_j": waiting_w * waits_s,
            "comm_energy_j": np.where(begins_to_send, sent_j, 0.0),
        }
        kwh = sum(joules.values()) / J_PER_KWH
        by_grid = {
            BY_SIGNAL[name].column: kwh * s.at(at_s, flights.site) for name, s in world.signals.items()
        }
        for name, amount in (joules | by_grid).items():
            sums[name] += amount
        if last:
            were_idle, flown = np.flatnonzero(idle_s > 0), ~is_idle if is_idle.any() else slice(None)
            columns = {"site": flights.site, "start_s": since_s, "comm_s": idle_s, **sums}
            idle = {name: values[were_idle] for name, values in columns.items()}
            return {name: values[flown] for name, values in sums.items()}, idle
    raise _too_many_changes(world, times, changes)


def _intervals(
    world: World, times: RoundTimes, flights: Flights
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """When each flight begins to compute, ends that, and has waited, and the network's joules of its transfer if that
    begins in the round, else 0; [f] each."""
    start_s, end_s, asked = times.start_s, times.end_s, flights.status != Status.OUT
    latest_s = np.minimum(end_s, flights.start_s + world.deadline_s)
    begin_s = np.minimum(flights.begin_s, latest_s)
    computed_s = np.where(asked, np.minimum(flights.computed_s, latest_s), flights.start_s)
    sends = asked & (flights.status != Status.IDLE) & (flights.computed_s <= latest_s)
    if world.is_released:
        free_s = np.where(sends, np.fmin(computed_s + flights.comm_s, latest_s), latest_s)
    elif _may_repeat(world, times):
        # with windows a site waits on that is out when it is to start
        restarts = asked | (not world.has_windows)
        free_s = _free_s(flights.site, np.where(restarts, flights.start_s, np.inf), end_s)
    else:
        free_s = end_s
    until_s = np.where(asked & (begin_s < latest_s), free_s, computed_s)
    begins = sends & ((flights.version == times.round - 1) | (flights.computed_s > start_s))
    num_asked = max(1, int((times.flights.status != Status.OUT).sum()))
    each_j = world.comm_energy_j * (1 - 1 / num_asked if world.links.all_reduces else 1)
    return begin_s, computed_s, until_s, np.where(begins, each_j, 0.0)


def _may_repeat(world: World, times: RoundTimes) -> bool:
    """Whether a site may be in the round twice."""
    return bool(times.age.any()) or world.has_windows


def _at_starts(supplied: CohortPower, start_s: np.ndarray, of_site: np.ndarray | slice) -> np.ndarray:
    """The power that each flight's site has when the flight starts, [f]."""
    power = np.empty(len(start_s))
    for each_s in np.unique(start_s).tolist():
        together = start_s == each_s
        power[together] = supplied.at(each_s)[of_site][together]
    return power


def _with_idle(world: World, times: RoundTimes) -> Flights:
    """The flights of a round and, below, an entry of status IDLE from its start for each site that may be provisioned
    and has no flight then."""
    flights = times.flights
    if world.is_released or not world.has_windows:
        return flights
    flies = (flights.start_s <= times.start_s) & (flights.status != Status.OUT)
    is_without = np.ones(len(world), bool)
    is_without[flights.site[flies]] = False
    sites = np.flatnonzero(is_without)
    usual = {"site": sites, "version": times.round - 1, "start_s": times.start_s, "status": Status.IDLE}
    columns = {name: np.broadcast_to(usual.get(name, 0), len(sites)) for name in vars(flights)}
    return Flights(*(np.append(values, columns[name]) for name, values in vars(flights).items()))


def _too_many_changes(
    world: World, times: RoundTimes, changes: Mapping[str, Callable[[float], float]]
) -> InputError:
    """The cause of a round of too many changes: a transfer that takes most of it, else the table that changes most;
    `changes` is {table: next_change_s}."""
    start_s, makespan_s, flights = times.start_s, times.makespan_s, times.flights
    when = f"in the round that starts at {start_s:g} s and lasts {makespan_s:g} s"
    sends = (flights.status != Status.OUT) & (flights.computed_s <= times.end_s)
    comm_s = np.where(sends, np.nan_to_num(flights.comm_s), 0.0)
    slowest = int(comm_s.argmax())
    if 2 * comm_s[slowest] > makespan_s:
        site = flights.site[slowest]
        rate = f"{world.links.bandwidth_bps[site]:g} bit/s"
        return InputError(
            "network",
            f"a transfer takes {comm_s[slowest]:g} s at {rate} at {world.site_name(site)} {when}",
            "check network.update_bytes, and the unit of the sites' bandwidth and round-trip time",
        )
    table = max(changes, key=lambda name: _num_changes(changes[name], start_s, start_s + makespan_s))
    return InputError(
        table,
        f"changes more than {MOST_STEPS:,} times {when}",
        f"use data of longer steps{' or rarer outages (faults.mtbf_s)' * (table == 'power')}, or shorter rounds",
    )


def _free_s(site: np.ndarray, start_s: np.ndarray, end_s: float) -> np.ndarray:
    """When the sites of flights have done with them, [f]: at the end of a round, or when they start again in it."""
    free_s = np.full(len(site), end_s)
    order = np.lexsort((start_s, site))
    again = np.flatnonzero(np.diff(site[order]) == 0)
    free_s[order[again]] = np.minimum(start_s[order[again + 1]], end_s)
    return free_s


def _num_changes(next_change_s: Callable[[float], float], start_s: float, end_s: float) -> int:
    """How often a value changes between two times, at most MOST_STEPS."""
    ends_s = (change_s for _, change_s, _ in islice(spans(start_s, next_change_s), MOST_STEPS))
    return sum(1 for _ in takewhile(lambda change_s: change_s < end_s, ends_s))


def _overlap_s(begin_s: float, end_s: float, from_s: np.ndarray | float, until_s: np.ndarray) -> np.ndarray:
    """Length of the intersection of [begin_s, end_s] and [from_s, until_s], [k] s."""
    return np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0.0)
