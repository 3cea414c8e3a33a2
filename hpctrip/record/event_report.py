"""The report of a run by event of [availability]: what was asked of its sites, and what these drew and lost."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from pydantic import ConfigDict

from hpctrip.base.errors import InputError
from hpctrip.base.series import spans
from hpctrip.base.units import HOUR_S, amount
from hpctrip.config.component import Component
from hpctrip.config.inputs import validate
from hpctrip.config.sources import changed_sources, named_files, read_sources
from hpctrip.record.reader import Run
from hpctrip.sim.availability import AVAILABILITY, Availability
from hpctrip.sim.availability.events import Events, ListedEvents
from hpctrip.sim.bill import bill
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import NETWORKS
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.quantities import ACTIVITIES
from hpctrip.sim.rounds import History, RoundRow, Status
from hpctrip.sim.sites import SITES
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import CohortPower, World

J_PER_MWH = 3.6e9


class Event(NamedTuple):
    """Some sites that are asked at the same times to do without the same share of their power."""

    table: str
    """Name of the table below [availability]."""
    part: Availability
    """All events of the table, as a part of the run's world."""
    sites: np.ndarray
    """[n]."""
    start_s: float
    end_s: float
    announced_s: float
    depth: float


class _WorldInput(Component):
    """The tables of an input that describe its world (`WorldInput` in sim/world.py)."""

    model_config = ConfigDict(extra="ignore")
    seed: int
    sites: SITES.field()
    network: NETWORKS.field()
    power: POWER_MODELS.field()
    throughput: THROUGHPUT_MODELS.field()
    timing: Timing
    faults: Faults
    availability: AVAILABILITY.named_fields()
    accounts: Accounts
    carbon: SIGNALS.field()
    price: SIGNALS.field()


def world_of(run: Run) -> World | None:
    """The world of a run with events; None where there are none, or it cannot be built, as a file that it reads has
    changed, or a plug-in is missing."""
    if all(table["kind"] != Events.kind for table in run.input.get("availability", {}).values()):
        return None
    import_module("hpctrip.cluster.site_power")  # registers a power model of a higher layer
    try:
        tables = validate(run.input, _WorldInput)
        files = [file.source() for file in named_files(tables)]
        if changed_sources(read_sources(run.meta["sources"]), files):
            return None
        world = World.build(tables, 4.0 * (run.meta["num_params"] + run.meta["num_buffers"]))
    except InputError:
        return None
    return replace(world, update_bytes=run.meta["update_bytes"])


def events_of(run: Run, world: World) -> list[Event]:
    """The events that began in a run."""
    return [event for event in listed(run, world) if event.start_s < run.rounds["clock_s"].max()]


def listed(run: Run, world: World) -> list[Event]:
    """The events of the input of a run, those of a table that are alike but for their sites in one."""
    names, events = sorted(run.input["availability"]), []  # as `World.build` has them, after [faults]
    for name, part in zip(names, world.availability[-len(names) :], strict=True):
        if isinstance(part, ListedEvents):
            columns = np.stack([part.start_s, part.end_s, part.announced_s, part.depth], axis=1)
            for values in np.unique(columns, axis=0):
                alike = np.flatnonzero((columns == values).all(axis=1))
                sites = np.unique(np.concatenate([part.sites_of(at) for at in alike]))
                events.append(Event(name, part, sites, *values.tolist()))
    return events


def by_event(run: Run) -> list[dict[str, Any]]:
    """{name: value} of every event: its table, num_sites, start_s, end_s, the depth that it asked for and whether it
    began in the run; energy_j that its sites drew in it, and without_j that they would have drawn in the same flights
    and waits with the power that they would have had without it; and lost_s, the seconds at full power that their
    flights lost by it. Empty where `world_of` is None."""
    if run.rounds.empty or (world := world_of(run)) is None:
        return []
    events, history, end_s = listed(run, world), History(), run.rounds["clock_s"].max()
    sums = np.zeros((len(events), 3))
    for row in run.history().rows:
        for event, own in zip(events, sums, strict=True):
            if row.clock_start_s < event.end_s and row.clock_s > event.start_s:
                own += _in_event(event, world.after(history), row)
        history = history.appended(row)
    return [
        {
            "table": event.table,
            "num_sites": len(event.sites),
            **{name: getattr(event, name) for name in ("start_s", "end_s", "depth")},
            "began": event.start_s < end_s,
            **dict(zip(("energy_j", "without_j", "lost_s"), own.tolist(), strict=True)),
        }
        for event, own in zip(events, sums, strict=True)
    ]


def _in_event(event: Event, world: World, row: RoundRow) -> np.ndarray:
    """energy_j, without_j and lost_s of `by_event` in one round of this world, [3]."""
    others = (Availability(len(world)) if each is event.part else each for each in world.availability)
    start_s, end_s = max(row.clock_start_s, event.start_s), min(row.clock_s, event.end_s)
    times = replace(RoundTimes.recorded(row), start_s=start_s, makespan_s=end_s - start_s)
    flights = times.flights
    flies = np.isin(flights.site, event.sites) & (flights.status != Status.OUT)
    sites, begin_s, computed_s = flights.site[flies], flights.begin_s[flies], flights.computed_s[flies]
    drawn_j, worked_s = [], []
    for each in (world, replace(world, availability=tuple(others))):
        spent, idle = bill(each, times)
        of_flights, of_idle = (np.isin(at, event.sites) for at in (flights.site, idle["site"]))
        drawn_j.append(sum(spent[name][of_flights].sum() + idle[name][of_idle].sum() for name in ACTIVITIES))
        power, total_s = CohortPower(each, sites, end_s), 0.0
        for now_s, change_s, at_s in spans(start_s, power.next_change_s):
            until_s = np.minimum(min(change_s, end_s), computed_s)
            computes_s = np.maximum(until_s - np.maximum(begin_s, now_s), 0.0)
            total_s += float(power.throughput_at(at_s) @ computes_s)
            if change_s >= end_s:
                break
        worked_s.append(total_s)
    return np.array([*drawn_j, worked_s[1] - worked_s[0]])


def sentence(event: dict[str, Any]) -> str:
    """An event of `by_event` as text."""
    if not event["began"]:
        return f"{event['num_sites']} site(s), from {event['start_s'] / HOUR_S:.3g} h on: the run ended before it"
    drawn_j, without_j, lost_h = event["energy_j"], event["without_j"], event["lost_s"] / HOUR_S
    change, rate, shed_j = "", "", without_j - drawn_j
    if without_j > 0:
        change = f", {drawn_j / without_j - 1:+.0%} against the same run without the event"
    if shed_j > 1e-6 * without_j:
        rate = f", {lost_h / (shed_j / J_PER_MWH):.3g} h per MWh shed"
    return (
        f"{event['num_sites']} site(s), {event['start_s'] / HOUR_S:.3g} h to {event['end_s'] / HOUR_S:.3g} h: asked "
        f"-{event['depth']:.0%}, drew {amount(drawn_j, 'joules')}{change}; "
        f"{lost_h:.3g} h of training at full power lost{rate}"
    )


def mean_draw_w(run: Run, sites: np.ndarray, edges_s: np.ndarray) -> np.ndarray:
    """The mean power that some sites [n] drew between each two of the times [m + 1], by the records, [m]: energies of a
    round are spread evenly over a site's computing and its waiting in it."""
    rows = run.cohorts[run.cohorts["site"].isin(sites)]
    rows = rows.merge(run.rounds[["round", "clock_start_s", "clock_s"]], on="round")
    from_s, to_s, is_idle = rows["clock_start_s"], rows["clock_s"], rows["status"] == Status.IDLE
    begun_s = rows["start_s"].fillna(from_s) + rows["queue_s"]  # of older files: all start together
    begin_s, computed_s = (at.clip(from_s, to_s) for at in (begun_s, begun_s + rows["compute_s"]))
    waited_s = to_s.where(~is_idle, computed_s + rows["comm_s"])
    drawn_j = np.zeros(len(edges_s))
    for a, b, joules in (
        (begin_s, computed_s, rows["compute_energy_j"]),
        (computed_s, waited_s, rows["wait_energy_j"] + rows["comm_energy_j"]),
    ):
        a, span_s, joules = a.to_numpy(), np.maximum((b - a).to_numpy(), 1e-9), joules.to_numpy()
        drawn_j += [joules @ np.clip((edge_s - a) / span_s, 0.0, 1.0) for edge_s in edges_s]
    return np.diff(drawn_j) / np.diff(edges_s)
