"""Faults of the simulated world: sites that go out and return, updates that the WAN loses or delays, and the deadline
after which the aggregator proceeds without the missing.

Shapes: N sites, M outages. Everything is a function of the seed, the simulated time and the round.
"""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.config.sources import Reads
from hpctrip.sim.timing import LONGEST_ROUND_S, Timing

LATEST_S = 1e9
"""Listed outages from then on, 30 years, are likely seconds since 1970."""
MOST_OUTAGES = 20_000_000
"""Random outages of all sites together until the end of a run, on average: 480 MB."""
MOST_OUTAGES_A_ROUND = 1_000
"""Mean number of random outages of a site within a deadline: each is one more step of the clock."""


class ListedOutages:
    """Outages from a list: site[j] is out in [start_s[j], end_s[j]). They may overlap."""

    def __init__(self, num_sites: int, site: np.ndarray, start_s: np.ndarray, end_s: np.ndarray):
        self.num_sites, self.site, self.start_s, self.end_s = num_sites, site, start_s, end_s

    def at(self, clock_s: float) -> np.ndarray:
        """Whether each site is out at that time, [N] bool."""
        down = np.zeros(self.num_sites, dtype=bool)
        down[self.site[(self.start_s <= clock_s) & (clock_s < self.end_s)]] = True
        return down

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which a site goes out or returns; inf: never."""
        changes = np.concatenate([self.start_s, self.end_s])
        return float(changes[changes > clock_s].min(initial=np.inf))

    def until(self, time_s: float) -> ListedOutages:
        """The list itself, which is complete at any time."""
        return self

    def among(self, sites: np.ndarray) -> ListedOutages:
        """The outages of these sites [k], which are numbered from 0."""
        position = np.full(self.num_sites, -1)
        position[sites] = np.arange(len(sites))
        mine = np.flatnonzero(position[self.site] >= 0)
        return ListedOutages(len(sites), position[self.site[mine]], self.start_s[mine], self.end_s[mine])


class RandomOutages:
    """Every site alternates between up times of mean `mtbf_s` and outages of mean `mttr_s`, both exponential; all sites
    are up at time 0. Drawn in chunks from the streams (seed, "outages", chunk); a list holds those that simulated time
    needs, and of each site the one after them.
    """

    CHUNK = 16
    """Outages per site and chunk."""

    def __init__(self, num_sites: int, mtbf_s: float, mttr_s: float, seed: int):
        self.num_sites, self.mtbf_s, self.mttr_s, self.seed = num_sites, mtbf_s, mttr_s, seed
        self._listed, self._until_s = _no_outages(num_sites), -np.inf

    def until(self, time_s: float) -> ListedOutages:
        """The list up to this time. InputError where about more than MOST_OUTAGES begin until then."""
        if time_s > self._until_s:
            between_s = self.mtbf_s + self.mttr_s
            latest_s = MOST_OUTAGES / self.num_sites * between_s
            if time_s > latest_s:
                problem = f"more than {MOST_OUTAGES:,} outages of {self.num_sites:,} sites by"
                raise InputError(
                    f"faults.mtbf_s = {self.mtbf_s:g}",
                    f"{problem} the simulated time {time_s:g} s",
                    "raise mtbf_s or mttr_s, or stop earlier (stop.max_clock_s)",
                )
            self._until_s = max(time_s, min(max(2 * time_s, 4 * between_s), latest_s))  # seldom anew
            self._listed = self._drawn(self._until_s)
        return self._listed

    def _drawn(self, until_s: float) -> ListedOutages:
        """The outages of each site up to the first that ends after `until_s`."""
        shape, last_s = (self.num_sites, self.CHUNK), np.zeros((self.num_sites, 1))
        parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # (site, start, end)
        while last_s.min() <= until_s:
            rng = stream(self.seed, "outages", len(parts))
            up_s, down_s = rng.exponential(self.mtbf_s, shape), rng.exponential(self.mttr_s, shape)
            up_s += down_s
            end_s = np.cumsum(up_s, axis=1, out=up_s)
            end_s += last_s
            listed = np.flatnonzero(np.hstack([last_s <= until_s, end_s[:, :-1] <= until_s]))
            last_s = end_s[:, -1:].copy()
            end_s = end_s.ravel()[listed]
            parts.append((listed // self.CHUNK, end_s - down_s.ravel()[listed], end_s))
        return ListedOutages(self.num_sites, *map(np.concatenate, zip(*parts, strict=True)))


def _no_outages(num_sites: int) -> ListedOutages:
    return ListedOutages(num_sites, np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))


class Faults(Component):
    """Faults of the simulated world; by default there are none.

    A site with an outage has no power: it makes no progress, and the profiler sees power 0 (except for noise and
    observations from before the outage). A policy may still choose it; the aggregator then neither sends it the model
    nor waits for it. A site whose outage begins during training continues when it returns, if the deadline permits.
    """

    deadline_s: Seconds | None = Field(None, gt=0, le=LONGEST_ROUND_S)
    """Time after a round's start at which the aggregator proceeds without missing updates. A round in which no site
    can be reached also lasts until the deadline and leaves the model unchanged. At most ten years. Absent: it waits
    for all updates."""
    mtbf_s: Seconds | None = Field(None, ge=60, le=LONGEST_ROUND_S)
    """Mean time between a site's return and its next outage (exponential), at most ten years; absent: no random
    outages. A deadline may span at most 1,000 times mtbf_s + mttr_s, and a run 20 million outages on average."""
    mttr_s: Seconds = Field(3600.0, ge=1, le=LONGEST_ROUND_S)
    """Mean length of a random outage (exponential)."""
    outages: Annotated[PathName | None, Reads()] = None
    """A CSV file of outages with the columns `site`, `start_s`, `end_s`, instead of random ones."""
    lost_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that the WAN loses its update."""
    late_fraction: float = Field(0.0, ge=0, le=1)
    """Probability per round and site that its update is delayed by `late_s`."""
    late_s: Seconds = Field(60.0, gt=0, le=LONGEST_ROUND_S)
    """Mean delay of a delayed update (exponential), added to its communication time."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: policies plan with the deadline, in the length of a round, its gain and what it spends."""
        return 1 if self.deadline_s is None else 2

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if self.mtbf_s is not None and self.outages is not None:
            raise ValueError("mtbf_s and outages exclude each other: random outages, or those of a file")
        if self.deadline_s is None and (self.mtbf_s or self.outages or self.lost_fraction):
            raise ValueError(
                "outages and lost updates need a deadline_s: else the aggregator would wait forever"
            )
        between_s = (self.mtbf_s or np.inf) + self.mttr_s
        if self.deadline_s is not None and self.deadline_s > MOST_OUTAGES_A_ROUND * between_s:
            raise ValueError(
                f"deadline_s = {self.deadline_s:g} spans more than {MOST_OUTAGES_A_ROUND:,} outages a site, one every "
                f"mtbf_s + mttr_s = {between_s:g} s: shorten deadline_s, or raise mtbf_s or mttr_s"
            )
        return self

    def check(self, timing: Timing) -> None:
        """InputError where it is not known in advance which sites miss the deadline."""
        if timing.compute == "measured" and self != Faults():
            raise InputError(
                'timing.compute = "measured"',
                "who misses a deadline must be known before the training that would be measured",
                'use compute = "modelled", or leave the table [faults] out',
            )

    def outages_of(self, num_sites: int, seed: int) -> ListedOutages | RandomOutages:
        """The outages of `num_sites` sites. InputError names the line of the CSV file that is wrong."""
        if self.outages is not None:
            return _read_outages(self.outages, num_sites)
        if self.mtbf_s is not None:
            return RandomOutages(num_sites, self.mtbf_s, self.mttr_s, seed)
        return _no_outages(num_sites)

    def wan(self, round: int, num_sites: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """(lost [N] bool, extra delay [N] s) of the updates of a round on the WAN. Drawn for all sites from the stream
        (seed, "wan", round), so that those of a site do not depend on the cohort."""
        if not (self.lost_fraction or self.late_fraction):
            return np.zeros(num_sites, dtype=bool), np.zeros(num_sites)
        rng = stream(seed, "wan", round)
        lost, late = rng.uniform(size=(2, num_sites))
        extra_s = rng.exponential(self.late_s, num_sites)
        return lost < self.lost_fraction, np.where(late < self.late_fraction, extra_s, 0.0)


def _read_outages(path: str, num_sites: int) -> ListedOutages:
    table = read_table(path, f"faults.outages = {path!r}")
    table.require("site", "start_s", "end_s")
    site = table.integers("site")
    start_s, end_s = table.numbers("start_s"), table.numbers("end_s")
    way_out = f"an outage is a site from 0 to {num_sites - 1} and 0 <= start_s < end_s"
    table.refuse("site", (site < 0) | (site >= num_sites), "is not a site", way_out)
    table.refuse("start_s", start_s < 0, "is before the start", way_out)
    table.refuse(
        "start_s", start_s >= LATEST_S, "is later than any run: outages count from the simulated time 0"
    )
    table.refuse("end_s", end_s <= start_s, "is not after start_s", way_out)
    return ListedOutages(num_sites, site, start_s, end_s)
