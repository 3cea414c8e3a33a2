"""The report of a run by event of [availability]: what was asked of its sites, and what these drew and lost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.io import digest_of_file
from hpctrip.base.units import HOUR_S, amount
from hpctrip.config.sources import read_sources
from hpctrip.record.reader import Run, open_run
from hpctrip.sim.availability import Surroundings
from hpctrip.sim.availability.events import Events, ListedEvents
from hpctrip.sim.power import PowerSupply
from hpctrip.sim.rounds import Status
from hpctrip.sim.times import moment_us


def by_event(run: Run) -> list[dict[str, Any]]:
    """{name: value} of every event that began in the run: its table, num_sites, start_s, end_s and the depth that it
    asked for; energy_j that its sites drew in it; their mean draw, mean_w, and that in the hour before, before_w; and
    lost_s, the seconds at full power that their flights lost. Energies of a flight are spread evenly over its computing
    and its waiting in a round. Empty where the file of the events is no longer there."""
    if run.rounds.empty or not (files := [*_files(run)]):
        return []
    cohorts = open_run(run.path).cohorts if run.cohorts.empty else run.cohorts  # `show` reads without them
    rows = cohorts.merge(run.rounds[["round", "clock_start_s", "clock_s"]], on="round")
    from_s, to_s, idle = rows["clock_start_s"], rows["clock_s"], rows["status"] == Status.IDLE
    flies, last_s = ~idle & (rows["status"] != Status.OUT), float(to_s.max())
    begin_s = (rows["start_s"] + rows["queue_s"]).clip(from_s, to_s)
    computed_s = (rows["start_s"] + rows["queue_s"] + rows["compute_s"]).clip(from_s, to_s)
    waited_s = to_s.where(~idle, computed_s + rows["comm_s"])
    parts = (begin_s, computed_s, rows["compute_energy_j"]), (computed_s, waited_s, rows["wait_energy_j"])

    def within(start_s: float, end_s: float, begin_s: Any, until_s: Any) -> Any:
        return (np.minimum(until_s, end_s) - np.maximum(begin_s, start_s)).clip(lower=0)

    def drawn_j(those: Any, start_s: float, end_s: float) -> float:
        shares = (within(start_s, end_s, a, b) / (b - a) * joules for a, b, joules in parts)
        return float(sum(share[those].sum() for share in shares))

    def reported(name: str, listed: ListedEvents, at: int) -> dict[str, Any]:
        start_s, end_s, depth = (float(values[at]) for values in (listed.start_s, listed.end_s, listed.depth))
        sites = listed.sites_of(at)
        those, before_s = rows["site"].isin(sites), max(start_s - HOUR_S, 0.0)
        energy_j, before_j = drawn_j(those, start_s, end_s), drawn_j(those, before_s, start_s)
        return {
            "table": name,
            "num_sites": len(sites),
            "start_s": start_s,
            "end_s": end_s,
            "depth": depth,
            "energy_j": energy_j,
            "mean_w": energy_j / (min(end_s, last_s) - start_s),
            "before_w": before_j / (start_s - before_s) if start_s else math.nan,
            "lost_s": depth * float(within(start_s, end_s, begin_s, computed_s)[those & flies].sum()),
        }

    begun = ((name, listed, np.flatnonzero(listed.start_s < last_s)) for name, listed in files)
    return [reported(name, listed, at) for name, listed, events in begun for at in events]


def sentence(event: dict[str, Any]) -> str:
    """An event of `by_event` as text."""
    change = ""
    if event["before_w"] > 0:
        change = f", {event['mean_w'] / event['before_w'] - 1:+.0%} against the hour before"
    return (
        f"{event['num_sites']} site(s), {event['start_s'] / HOUR_S:.3g} h to {event['end_s'] / HOUR_S:.3g} h: asked "
        f"-{event['depth']:.0%}, drew {amount(event['energy_j'], 'joules')}{change}; "
        f"{event['lost_s'] / HOUR_S:.3g} h of training at full power lost"
    )


def _files(run: Run) -> Iterator[tuple[str, ListedEvents]]:
    """(table, its events) of the files of events that are as the run read them."""
    begin_us = sorted({moment_us(text.split()[1]) for text in run.meta["simulated_start"]})
    columns = {name: run.sites[name].to_numpy() for name in ("group", "name") if name in run.sites}
    digests = {source.key: source.digest for source in read_sources(run.meta["sources"])}
    for name, table in sorted(run.input.get("availability", {}).items()):
        place = f"availability.{name}"
        if table["kind"] != "events" or not Path(table["path"]).is_file():
            continue
        if digest_of_file(Path(table["path"])) == digests.get(f"{place}.path"):
            around = Surroundings(len(run.sites), 0, columns, PowerSupply(), {}, begin_us)
            timezone = table.get("timezone", "UTC")
            yield name, Events(path=table["path"], timezone=timezone).availability(place, around)
