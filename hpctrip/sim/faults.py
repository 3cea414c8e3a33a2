"""Faults of the simulated world: sites that go out and return, updates that the WAN loses or delays, and the deadline
after which the aggregator proceeds without the missing.

Shapes: N sites, M outages. Everything is a function of the seed, the simulated time and the round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.files import PathName
from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.sim.csv import column_numbers, read_table
from hpctrip.sim.timing import Timing


class Outages(Protocol):
    """When each site is out."""

    def down(self, clock_s: float) -> np.ndarray:
        """Whether each site is out at that time, [N] bool."""
        ...

    def next_change_s(self, clock_s: float, among: np.ndarray) -> float:
        """The first time after `clock_s` at which one of the sites `among` goes out or returns; inf: never."""
        ...


class ListedOutages:
    """Outages known in advance: site[j] is out in [start_s[j], end_s[j]). They may overlap."""

    def __init__(self, num_sites: int, site: np.ndarray, start_s: np.ndarray, end_s: np.ndarray):
        self.num_sites, self.site, self.start_s, self.end_s = num_sites, site, start_s, end_s

    def down(self, clock_s: float) -> np.ndarray:
        """[N] bool."""
        down = np.zeros(self.num_sites, dtype=bool)
        down[self.site[(self.start_s <= clock_s) & (clock_s < self.end_s)]] = True
        return down

    def next_change_s(self, clock_s: float, among: np.ndarray) -> float:
        """Over starts and ends."""
        if not len(self.site):
            return np.inf
        concerned = np.isin(self.site, among)
        changes = np.concatenate([self.start_s[concerned], self.end_s[concerned]])
        return float(changes[changes > clock_s].min(initial=np.inf))


class RandomOutages:
    """Every site alternates between up times of mean `mtbf_s` and outages of mean `mttr_s`, both exponential; all sites
    are up at time 0. Drawn in chunks from the streams (seed, "outages", chunk) as far as anybody has asked."""

    CHUNK = 16
    """Outages per site and chunk."""

    def __init__(self, num_sites: int, mtbf_s: float, mttr_s: float, seed: int):
        self.num_sites, self.mtbf_s, self.mttr_s, self.seed = num_sites, mtbf_s, mttr_s, seed
        self.num_chunks, self.known_until_s = 0, np.zeros(num_sites)
        nothing = np.zeros(0)
        self.drawn = ListedOutages(num_sites, nothing.astype(np.int64), nothing, nothing)

    def down(self, clock_s: float) -> np.ndarray:
        """[N] bool."""
        return self._known(clock_s).down(clock_s)

    def next_change_s(self, clock_s: float, among: np.ndarray) -> float:
        """Always finite: every site's last known outage ends after `clock_s`."""
        return self._known(clock_s).next_change_s(clock_s, among)

    def _known(self, clock_s: float) -> ListedOutages:
        while self.known_until_s.min() <= clock_s:
            rng = stream(self.seed, "outages", self.num_chunks)
            shape = (self.num_sites, self.CHUNK)
            up_s, down_s = rng.exponential(self.mtbf_s, shape), rng.exponential(self.mttr_s, shape)
            end_s = self.known_until_s[:, None] + np.cumsum(up_s + down_s, axis=1)
            site = np.repeat(np.arange(self.num_sites), self.CHUNK)
            old = self.drawn
            self.drawn = ListedOutages(
                self.num_sites,
                np.concatenate([old.site, site]),
                np.concatenate([old.start_s, (end_s - down_s).ravel()]),
                np.concatenate([old.end_s, end_s.ravel()]),
            )
            self.known_until_s, self.num_chunks = end_s[:, -1], self.num_chunks + 1
        return self.drawn


class Faults(Component):
    """Faults of the simulated world; by default there are none.

    A site that is out has no power: it makes no progress, and the profiler sees power 0 (an observation that is older
    than the outage, or noise, may still show some). A policy may choose it all the same; the aggregator, which cannot
    reach it, then neither sends it the model nor waits for it. A site that goes out while it trains goes on from
    where it was when it returns, if the deadline leaves it the time.
    """

    deadline_s: Seconds | None = Field(None, gt=0)
    """The aggregator proceeds this long after a round's start without the updates that have not come. A round in which
    nobody can be reached costs the deadline too and leaves the model unchanged. Absent: it waits for all."""
    mtbf_s: Seconds | None = Field(None, ge=60)
    """Mean time between a site's return and its next outage (exponential); absent: no random outages."""
    mttr_s: Seconds = Field(3600.0, ge=1)
    """Mean length of a random outage (exponential)."""
    outages: PathName | None = None
    """A CSV file of outages with the columns `site`, `start_s`, `end_s`, instead of random ones."""
    lost_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that the WAN loses its update."""
    late_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that its update is delayed by `late_s`."""
    late_s: Seconds = Field(60.0, gt=0)
    """Mean delay of a delayed update (exponential), added to its communication time."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.mtbf_s is not None and self.outages is not None:
            raise ValueError("mtbf_s and outages exclude each other: random outages, or those of a file")
        if self.deadline_s is None and (self.mtbf_s or self.outages or self.lost_fraction):
            raise ValueError(
                "outages and lost updates need a deadline_s: who waits for all would wait forever"
            )
        return self

    def check(self, timing: Timing) -> None:
        """InputError where the clock cannot say in advance who misses the deadline."""
        if timing.compute == "measured" and self != NO_FAULTS:
            raise InputError(
                'timing.compute = "measured"',
                "who misses a deadline must be known before the training that would be measured",
                'use compute = "modelled", or leave the table [faults] out',
            )

    def schedule(self, num_sites: int, seed: int) -> FaultSchedule:
        """What happens to `num_sites` sites. InputError names what is wrong with the CSV file."""
        nothing = np.zeros(0)
        if self.outages is not None:
            outages: Outages = _read_outages(self.outages, num_sites)
        elif self.mtbf_s is not None:
            outages = RandomOutages(num_sites, self.mtbf_s, self.mttr_s, seed)
        else:
            outages = ListedOutages(num_sites, nothing.astype(np.int64), nothing, nothing)
        return FaultSchedule(self, outages, num_sites, seed)


NO_FAULTS = Faults()


@dataclass(frozen=True)
class FaultSchedule:
    """The faults of one seed."""

    faults: Faults
    outages: Outages
    num_sites: int
    seed: int

    @property
    def deadline_s(self) -> float:
        """Seconds from a round's start until the aggregator proceeds; inf: it waits for all."""
        return float("inf") if self.faults.deadline_s is None else self.faults.deadline_s

    def wan(self, round: int) -> tuple[np.ndarray, np.ndarray]:
        """What the WAN does to the updates of a round: (lost [N] bool, extra delay [N] s). Drawn for all sites from the
        stream (seed, "wan", round), so that a site's luck does not depend on the cohort."""
        faults = self.faults
        if not (faults.lost_fraction or faults.late_fraction):
            return np.zeros(self.num_sites, dtype=bool), np.zeros(self.num_sites)
        rng = stream(self.seed, "wan", round)
        lost, late = rng.uniform(size=(2, self.num_sites))
        extra_s = rng.exponential(faults.late_s, self.num_sites)
        return lost < faults.lost_fraction, np.where(late < faults.late_fraction, extra_s, 0.0)


def _read_outages(path: str, num_sites: int) -> ListedOutages:
    place = f"faults.outages = {path!r}"
    table = read_table(path, place, "the columns site, start_s, end_s")
    columns = {}
    for name in ("site", "start_s", "end_s"):
        if name not in table:
            raise InputError(place, f"no column {name} among: {', '.join(map(str, table.columns))}")
        columns[name] = column_numbers(table, name)
    site, start_s, end_s = columns["site"], columns["start_s"], columns["end_s"]
    wrong = {
        "site": ~((site >= 0) & (site < num_sites) & (site == np.floor(site))),
        "start_s": ~((start_s >= 0) & (start_s < end_s)),
        "end_s": ~np.isfinite(end_s),
    }
    for name, rows in wrong.items():
        if rows.any():
            row = int(np.flatnonzero(rows)[0])
            raise InputError(
                place,
                f"row {row + 2}: {name} is '{table[name].iloc[row]}'",
                f"an outage is a site from 0 to {num_sites - 1} and 0 <= start_s < end_s",
            )
    return ListedOutages(num_sites, site.astype(np.int64), start_s, end_s)
