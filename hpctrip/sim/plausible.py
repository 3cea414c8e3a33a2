"""Warnings of implausible values of a world, such as those in a wrong unit, and a summary of its power."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from hpctrip.base.series import asked_s
from hpctrip.base.text import counted
from hpctrip.base.units import HOUR_S, amount
from hpctrip.sim.availability.events import ListedEvents
from hpctrip.sim.grid.signals import unusual
from hpctrip.sim.times import utc
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World

LONG_RTT_S = 1.0
"""A longer round-trip time is probably in milliseconds: one by a geostationary satellite is 0.6 s."""

ODD = 100.0
"""Factor by which a site's hardware is probably not what its other values were meant for."""


def warnings(world: World, reach_s: float | None = None) -> list[str]:
    """One line for each value that is probably a mistake, such as one in a wrong unit, and for what has no effect;
    `reach_s` is the latest end of the run in simulated time, where it is known."""
    signals = (unusual(table, signal, world.accounts.currency) for table, signal in world.signals.items())
    parts = (part for part in world.availability if isinstance(part, ListedEvents))
    events = (_of_events(world, part, reach_s or np.inf) for part in parts)
    of_power = world.supply.warnings(), _of_power(world)
    return [*chain(world.network.warnings(), *of_power, *signals, *events, _of_sites(world))]


def power_at_start(world: World) -> str:
    """The range of the power fractions at time 0, and the columns of the power file that no site follows."""
    fractions, unused = world.power_fraction(0.0), world.supply.unused()
    text = f"P at the start {fractions.min():.2g} to {fractions.max():.2g}"
    return f"{text}; no site follows {', '.join(unused)}" if unused else text


def _of_power(world: World) -> Iterator[str]:
    """A line where most sites have, at any time that is looked at, all that they can draw, although there are data of
    their power, or contracts beyond what they draw."""
    site_w, drawn_w = world.hardware.site_w, _drawn_w(world)
    is_told = site_w > drawn_w if world.supply.synthetic else np.full(len(world), True)
    least_w = world.supply.least() * site_w if is_told.any() else np.zeros(len(world))
    ample = np.flatnonzero(is_told & (least_w >= drawn_w))
    if 2 * len(ample) > len(world):
        site, least, drawn = ample[0], *(amount(w[ample[0]], "watts") for w in (least_w, drawn_w))
        yield (
            f"power: it never limits {len(ample)} of {counted(len(world), 'site')}, such as {world.site_name(site)}, "
            f"which gets at least {least} and draws at most {drawn}; check power.unit, the numbers of GPUs "
            "(throughput.num_gpus, or a column gpus) and the contracts"
        )


def _drawn_w(world: World) -> np.ndarray:
    """The most that each site can draw, [N] watts."""
    return np.minimum(world.hardware.full_power_w, world.hardware.site_w)


def _of_events(world: World, part: ListedEvents, reach_s: float) -> Iterator[str]:
    """Lines about the events of a table that begin after the data or the run, and about those that slow no site."""
    begins_us = {dates.begin_us for dates in world.calendars.values()}
    lengths_s = [(dates.end_us - dates.begin_us) / 1e6 for dates in world.calendars.values()]
    end_s, ends = min((min([*lengths_s, world.supply.ends_s]), "data end at"), (reach_s, "run ends at about"))

    def when(at_s: float) -> str:
        date = f" ({utc(int(min(begins_us) + at_s * 1e6))} UTC)" if len(begins_us) == 1 else ""
        return f"{at_s / HOUR_S:.3g} h{date}"

    def events(those: Sequence[int], which: str) -> str:
        site, at_s = world.site_name(part.sites_of(those[0])[0]), part.start_s[those[0]]
        number = f"{len(those)} of {len(part.unit)}"
        return f"{part.place}: events that {which}: {number}, such as that of {when(at_s)} at {site}"

    if (late := np.flatnonzero(part.start_s >= end_s)).size:
        yield f"{events(late, 'begin too late')}; the {ends} {when(end_s)}"
    if idle := [e for e in np.flatnonzero(part.start_s < end_s) if not _slows(world, part, e)]:
        site, has_w = part.sites_of(idle[0])[0], world.supplied(part.start_s[idle[0]]) * world.hardware.site_w
        watts = has_w * (1 - part.depth[idle[0]]), has_w, _drawn_w(world)
        left, has, drawn = (amount(w[site], "watts") for w in watts)
        yield f"{events(idle, 'slow no site')}, which then has {left} instead of {has}, and draws at most {drawn}"


def _slows(world: World, part: ListedEvents, event: int) -> bool:
    """Whether an event slows one of its sites, as far as the power is looked at."""
    supply, throughput, sites = world.supply, world.hardware.throughput, part.sites_of(event)
    times_s = asked_s(part.start_s[event], min(part.end_s[event], supply.ends_s), supply.next_change_s)
    left, powers = 1 - part.depth[event], (world.supplied(at_s)[sites] for at_s in times_s)
    return any((throughput(left * each, sites) < throughput(each, sites)).any() for each in powers)


def without_own_speed(world: World) -> np.ndarray:
    """Which sites compute as fast as `timing.seconds_per_sample` says, because their file does not, [N] bool."""
    return np.isnan(world.site_columns.get("seconds_per_sample", np.full(len(world), np.nan)))


def _of_sites(world: World) -> Iterator[str]:
    columns, number = world.site_columns, len(world)
    rtt_s, names = columns.get("rtt_s", np.zeros(number)), columns.get("name", np.full(number, ""))
    if (slow := np.flatnonzero(rtt_s > LONG_RTT_S)).size:
        first = f"{rtt_s[slow[0]]:g} s at {world.site_name(slow[0])}"
        yield (
            f"sites: the round-trip time is above {LONG_RTT_S:g} s at {len(slow)} of {number} sites, such as {first}; "
            "name its column rtt_ms if it holds milliseconds"
        )
    comm_s = world.transfers(0.0).alone_s
    if (slow := np.flatnonzero(comm_s > HOUR_S)).size:
        rate = f"{world.links.bandwidth_bps[slow[0]]:g} bit/s"
        first = f"{comm_s[slow[0]] / HOUR_S:.3g} h at {rate} at {world.site_name(slow[0])}"
        yield (
            f"network: a transfer takes more than an hour at {len(slow)} of {number} sites, such as {first}; check "
            "network.update_bytes, and the unit of the sites' bandwidth and round-trip time"
        )
    hardware, unknown = world.hardware, without_own_speed(world)
    if not unknown.any() and (each_s := world.timing.seconds_per_sample) != Timing().seconds_per_sample:
        yield (
            f"timing.seconds_per_sample = {each_s:g} is not used: the sites file has seconds_per_sample of every site"
        )
    if (odd := np.flatnonzero(unknown & (np.abs(np.log(hardware.size)) >= np.log(ODD)))).size:
        yield (
            f"sites: {world.site_name(odd[0])} computes {hardware.size[odd[0]]:.3g} times as fast as "
            "timing.seconds_per_sample says, by its number of GPUs; set throughput.num_gpus to the number that it is "
            "meant for, or give a column seconds_per_sample"
        )
    if hardware.others and unknown.any():
        yield "sites: their kinds of GPUs are as fast as each other at full power; give a column seconds_per_sample"
    if (odd := np.flatnonzero(hardware.site_w <= hardware.full_power_w / ODD)).size:
        contract, drawn = (amount(w[odd[0]], "watts") for w in (hardware.site_w, hardware.full_power_w))
        yield f"sites: {world.site_name(odd[0])} has a contract of {contract}, its GPUs draw at most {drawn}"
    unique, counts = np.unique(names[names != ""], return_counts=True)
    if (twice := unique[counts > 1]).size:
        yield f"sites: several sites have the name {str(twice[0])!r}; give each its own name"
    yield from _of_zones(world, names)


def _of_zones(world: World, names: np.ndarray) -> Iterator[str]:
    """Signals whose zones have the names of the sites [N], or of the columns of their power, but belong to others."""
    before = ""
    if not names.all() and (columns := world.supply.describe().get("power_column")) is not None:
        names, before = columns, 'name the sites in a file (sites.kind = "csv"), and '
    for table, signal in world.signals.items():
        zones, own = ([str(name).casefold() for name in each] for each in (signal.names, names))
        if {*own} <= {*zones} and [zones[zone] for zone in signal.zone] != own:
            problem = (
                "its zones are named as the sites or their power are, but sites drew their zones at random"
            )
            yield f'{table}: {problem}; {before}set {table}.site_column = "name"'
