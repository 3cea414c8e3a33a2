"""The bill of a round: the energy, carbon and money that its flights spend within it. Shapes: N sites, f flights."""

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


def bill(world: World, times: RoundTimes) -> dict[str, np.ndarray]:
    """Energy, carbon and cost of the flights of a round [f] within it: {column of `SPENT`: [f]}; NaN where the grid
    signal is not set. The power that they draw is integrated over the same changes as the clock's.

    A site computes until it is done, its deadline passes or the round ends; then its update travels. All of the
    network's energy counts when the transfer begins, with the site's intensity and price at that time. A site that
    waits does so until the end of the round in which its update arrives, or until it starts again.
    """
    start_s, end_s, flights = times.start_s, times.end_s, times.flights
    asked = flights.status != Status.OUT
    latest_s = np.minimum(end_s, flights.start_s + world.deadline_s)
    begin_s = np.minimum(flights.begin_s, latest_s)  # a job in a queue holds no node
    computed_s = np.where(asked, np.minimum(flights.computed_s, latest_s), flights.start_s)
    sends = asked & (flights.computed_s <= latest_s)
    sent_s = np.where(sends, np.fmin(computed_s + flights.comm_s, latest_s), latest_s)
    free_s = _free_s(flights, end_s) if world.accounts.waiting == "idle" else sent_s
    until_s = np.where(asked & (begin_s < latest_s), free_s, computed_s)
    begins_to_send = sends & ((times.age == 0) | (flights.computed_s > start_s))
    sites, of_site = flights.site, slice(None)
    if times.age.any():  # a site may be in the round twice
        sites, of_site = np.unique(sites, return_inverse=True)
    supplied = CohortPower(world, sites, max(end_s, start_s + world.deadline_s))
    changes = {table: signal.next_change_s for table, signal in world.signals.items()}
    if frozen := world.timing.power == "frozen":
        power = np.empty(len(flights))
        for each_s in np.unique(flights.start_s).tolist():
            together = flights.start_s == each_s
            power[together] = supplied.at(each_s)[of_site][together]
    else:
        changes["power"] = supplied.next_change_s
    sums = {name: np.zeros(len(flights)) for name in SPENT}

    def change_s(clock_s: float) -> float:
        return min(next_change_s(clock_s) for next_change_s in changes.values())

    for now_s, span_end_s, at_s in islice(spans(start_s, change_s), MOST_STEPS):
        last = span_end_s >= end_s
        until = end_s if last else span_end_s
        if not frozen:
            power = supplied.at(at_s)[of_site]
        busy_w, waiting_w = world.hardware.draw_w(power, flights.site)
        begins = begins_to_send & (computed_s >= now_s) & (last | (computed_s < until))
        joules = {
            "compute_energy_j": busy_w * _overlap_s(now_s, until, begin_s, computed_s),
            "wait_energy_j": waiting_w * _overlap_s(now_s, until, computed_s, until_s),
            "comm_energy_j": np.where(begins, world.comm_energy_j, 0.0),
        }
        kwh = sum(joules.values()) / J_PER_KWH
        by_grid = {
            BY_SIGNAL[name].column: kwh * s.at(at_s, flights.site) for name, s in world.signals.items()
        }
        for name, amount in (joules | by_grid).items():
            sums[name] += amount
        if last:
            return sums
    raise _too_many_changes(world, times, changes)


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


def _free_s(flights: Flights, end_s: float) -> np.ndarray:
    """When the sites of flights have done with them, [f]: at the end of a round, or when they start again in it."""
    free_s = np.full(len(flights), end_s)
    order = np.lexsort((flights.start_s, flights.site))
    again = np.flatnonzero(np.diff(flights.site[order]) == 0)
    free_s[order[again]] = flights.start_s[order[again + 1]]
    return free_s


def _num_changes(next_change_s: Callable[[float], float], start_s: float, end_s: float) -> int:
    """How often a value changes between two times, at most MOST_STEPS."""
    ends_s = (change_s for _, change_s, _ in islice(spans(start_s, next_change_s), MOST_STEPS))
    return sum(1 for _ in takewhile(lambda change_s: change_s < end_s, ends_s))


def _overlap_s(begin_s: float, end_s: float, from_s: np.ndarray | float, until_s: np.ndarray) -> np.ndarray:
    """Length of the intersection of [begin_s, end_s] and [from_s, until_s], [k] s."""
    return np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0.0)
