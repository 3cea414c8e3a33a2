"""Warnings of implausible values of a world, such as those in a wrong unit, and a summary of its power."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from hpctrip.base.units import HOUR_S, amount
from hpctrip.sim.grid.signals import unusual
from hpctrip.sim.world import World

LONG_RTT_S = 1.0
"""A longer round-trip time is probably in milliseconds: one by a geostationary satellite is 0.6 s."""

ODD = 100.0
"""Factor by which a site's hardware is probably not what its other values were meant for."""

ODD_WITHOUT_GPUS = 2.0
"""The same for a contract of a site whose number of GPUs is that of [throughput]."""


def warnings(world: World) -> list[str]:
    """One line for each value that is probably a mistake, such as one in a wrong unit."""
    signals = (unusual(table, signal, world.accounts.currency) for table, signal in world.signals.items())
    return [*world.network.warnings(), *world.supply.warnings(), *chain(*signals), *_of_sites(world)]


def power_at_start(world: World) -> str:
    """The range of the power fractions at time 0, and the columns of the power file that no site follows."""
    fractions, unused = world.power_fraction(0.0), world.supply.unused()
    text = f"P at the start {fractions.min():.2g} to {fractions.max():.2g}"
    return f"{text}; no site follows {', '.join(unused)}" if unused else text


def _is_odd(ratio: np.ndarray, factor: float = ODD) -> np.ndarray:
    """Whether numbers that should be near 1 are beyond a factor."""
    return (ratio >= factor) | (ratio <= 1 / factor)


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
    hardware, unknown = world.hardware, np.isnan(columns.get("seconds_per_sample", np.full(number, np.nan)))
    if (odd := np.flatnonzero(unknown & _is_odd(hardware.size))).size:
        yield (
            f"sites: {world.site_name(odd[0])} computes {hardware.size[odd[0]]:.3g} times as fast as "
            "timing.seconds_per_sample says, by its number of GPUs; set throughput.num_gpus to the number that it is "
            "meant for, or give a column seconds_per_sample"
        )
    if hardware.others and unknown.any():
        yield "sites: their kinds of GPUs are as fast as each other at full power; give a column seconds_per_sample"
    contract_w, full_w = columns.get("contract_w", np.full(number, np.nan)), hardware.full_power_w
    factor = ODD if "num_gpus" in columns else ODD_WITHOUT_GPUS
    if (odd := np.flatnonzero(_is_odd(contract_w / full_w, factor))).size:
        contract, drawn = (amount(w[odd[0]], "watts") for w in (contract_w, full_w))
        text = f"sites: {world.site_name(odd[0])} has a contract of {contract}, its GPUs draw at most {drawn}"
        hint = "" if "num_gpus" in columns else "; give a column gpus, or set throughput.num_gpus"
        yield text + hint
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
