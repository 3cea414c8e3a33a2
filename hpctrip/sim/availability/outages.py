"""Outages of sites: from a list, or drawn. Shapes: N sites, k sites of a cohort, M outages."""

from __future__ import annotations

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.sim.availability.base import Availability
from hpctrip.sim.stated_units import seconds

LATEST_S = 1e9
"""Listed outages from then on, 30 years, are likely seconds since 1970."""
MOST_OUTAGES = 20_000_000
"""Random outages of all sites together until the end of a run, on average: 480 MB."""


class ListedOutages(Availability):
    """Outages from a list: site[j] is out in [start_s[j], end_s[j]). They may overlap."""

    def __init__(self, num_sites: int, site: np.ndarray, start_s: np.ndarray, end_s: np.ndarray):
        self.num_sites, self.site, self.start_s, self.end_s = num_sites, site, start_s, end_s

    def at(self, clock_s: float) -> np.ndarray:
        """0 where a site is out at that time, else 1, [N]."""
        share = np.ones(self.num_sites)
        share[self.site[(self.start_s <= clock_s) & (clock_s < self.end_s)]] = 0.0
        return share

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which a site goes out or returns; inf: never."""
        changes = np.concatenate([self.start_s, self.end_s])
        return float(changes[changes > clock_s].min(initial=np.inf))

    def among(self, sites: np.ndarray, until_s: float) -> ListedOutages:
        """The outages of these sites [k], which are numbered from 0; the list is complete at any time."""
        position = np.full(self.num_sites, -1)
        position[sites] = np.arange(len(sites))
        mine = np.flatnonzero(position[self.site] >= 0)
        return ListedOutages(len(sites), position[self.site[mine]], self.start_s[mine], self.end_s[mine])


class RandomOutages(Availability):
    """Every site alternates between up times of mean `mtbf_s` and outages of mean `mttr_s`, both exponential; all sites
    are up at time 0. Drawn in chunks from the streams (seed, "outages", chunk).

    The list is a cache, because drawing is slow: it reaches beyond the simulated time, and one of any other length
    gives the same answers.
    """

    CHUNK = 16
    """Outages per site and chunk."""

    def __init__(self, num_sites: int, mtbf_s: float, mttr_s: float, seed: int):
        self.num_sites, self.mtbf_s, self.mttr_s, self.seed = num_sites, mtbf_s, mttr_s, seed
        self._listed: ListedOutages
        self._until_s = -np.inf

    def at(self, clock_s: float) -> np.ndarray:
        """0 where a site is out at that time, else 1, [N]."""
        return self.until(clock_s).at(clock_s)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which a site goes out or returns."""
        return self.until(clock_s).next_change_s(clock_s)

    def among(self, sites: np.ndarray, until_s: float) -> ListedOutages:
        """The outages of these sites [k] up to this time, numbered from 0."""
        return self.until(until_s).among(sites, until_s)

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


def read_outages(path: str, num_sites: int) -> ListedOutages:
    """The outages of a CSV file. InputError names the line that is wrong."""
    table = read_table(path, f"faults.outages = {path!r}")
    site = table.integers("site")
    (start, start_s), (end, end_s) = seconds(table, "start"), seconds(table, "end")
    hint = f"an outage is a site from 0 to {num_sites - 1} and 0 <= start_s < end_s"
    table.refuse("site", (site < 0) | (site >= num_sites), "is not a site", hint)
    table.refuse(start, start_s < 0, "is before the start", hint)
    table.refuse(start, start_s >= LATEST_S, "is later than any run: outages count from the simulated time 0")
    table.refuse(end, end_s <= start_s, f"is not after {start}", hint)
    return ListedOutages(num_sites, site, start_s, end_s)
