"""Contract of the availability of sites: the share of its power supply that each may use, as a function of simulated
time, and how long a site waits that is asked.

A site's power is that of the supply times its availability in every component of it; where one is 0 at the start of a
round, the site is out: it is neither asked nor waited for. Everything is a function of the seed, the simulated time and
the finished rounds. Shapes: N sites, n of some sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hpctrip.base.csv import Table
from hpctrip.base.text import unknown_name
from hpctrip.base.validate import instance, numbers
from hpctrip.config.component import Component, Registry
from hpctrip.sim.grid.signals import GridSignal
from hpctrip.sim.power import PowerSupply
from hpctrip.sim.rounds import History


class Availability:
    """Base of the components of availability, with the contract of base/series.py. By default every site may use all of
    its supply at any time, and starts at once."""

    is_awaited: ClassVar[bool] = False
    """Whether a round in which no site can be asked ends as soon as one can; else it lasts until the deadline, which
    the input must then have, as the table [faults] asks for one."""

    provisions: ClassVar[bool] = False
    """Whether sites are provisioned from `since_s` on, and then draw idle power while they have no flight."""
    has_queues: ClassVar[bool] = False
    """Whether sites that are asked wait (`wait_s`)."""

    def __init__(self, num_sites: int):
        self.num_sites = num_sites

    def at(self, clock_s: float) -> np.ndarray:
        """The share in [0, 1] of its supply that each site may use at that time, [N]."""
        return np.ones(self.num_sites)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the share of a site may change; inf: never."""
        return np.inf

    def among(self, sites: np.ndarray, until_s: float) -> Availability:
        """The same shares for these sites [n] alone, numbered from 0, as far as the time `until_s`."""
        return Availability(len(sites))

    def after(self, history: History) -> Availability:
        """The same after these rounds."""
        return self

    def since_s(self, clock_s: float) -> np.ndarray:
        """When each site was provisioned, [N]; later than `clock_s`: it is not."""
        return np.full(self.num_sites, -np.inf)

    def known(self, clock_s: float) -> Availability:
        """The same as far as it has been announced by a time: policies may know it."""
        return Availability(self.num_sites)

    def falls_s(self, clock_s: float) -> np.ndarray:
        """When the share of each site falls next, as far as it has been announced by that time, [N]; inf: nothing is
        announced."""
        return np.full(self.num_sites, np.inf)

    def pauses_s(self, clock_s: float) -> Sequence[np.ndarray]:
        """When the work of each site stands still from then on, as far as that has been announced by that time: one
        [2, N] after another, from when and until when; inf: no more."""
        return ()

    def wait_s(self, round: int, start_s: float, sites: np.ndarray) -> np.ndarray:
        """Seconds that these sites [n] wait which are asked in a round (from 1) at that time, [n]."""
        return np.zeros(len(sites))


@dataclass(frozen=True)
class Surroundings:
    """The world that the availability of N sites may depend on."""

    num_sites: int
    seed: int
    columns: Mapping[str, np.ndarray]
    """Columns of the sites' file, [N] each."""
    supply: PowerSupply
    signals: Mapping[str, GridSignal]
    """{input table: its signal}."""
    begin_us: Sequence[int]
    """The moments at which simulated time begins in the series that have dates, microseconds since 1970."""

    def sites_of(self, table: Table) -> np.ndarray:
        """The sites in the column `site` of a table, by name or by number, as numbers [R]. InputError names the first
        line of which there is no such site."""
        names, given = np.array(self.columns.get("name", ())), np.array(table.column("site"))
        is_name = np.isin(given, names[names != ""])
        if is_name.any() or ((names != "").any() and not np.char.isdecimal(given).all()):
            hint = unknown_name(str(given[is_name.argmin()]), filter(None, names.tolist()))
            table.refuse("site", ~is_name, "is no site", hint)
            order = np.argsort(names, kind="stable")
            return order[np.searchsorted(names[order], given)]
        site = table.integers("site")
        none = f"is no site from 0 to {self.num_sites - 1}{', and no name of one' * bool(len(names))}"
        table.refuse("site", (site < 0) | (site >= self.num_sites), none)
        return site


class AvailabilityModel(Component):
    """Base of the tables [availability.NAME]."""

    def availability(self, place: str, around: Surroundings) -> Availability:
        """The availability of the sites. InputError at `place`, the table, where it cannot be."""
        raise NotImplementedError

    def checked_availability(self, place: str, around: Surroundings) -> Availability:
        """The availability. InputError where it is none, or gives no share for each site at the start."""
        part = instance(self.availability(place, around), Availability, place, "its availability")
        numbers(part.at(0.0), (around.num_sites,), 0.0, 1.0, place, "the shares of the sites' power")
        return part


AVAILABILITY = Registry("kind of availability", required=AvailabilityModel.availability)
