"""Events that are known in advance: for a while, sites may use only a part of their power, or none."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import unknown_name
from hpctrip.config.sources import Reads
from hpctrip.sim.availability.base import AVAILABILITY, Availability, AvailabilityModel, Surroundings
from hpctrip.sim.availability.outages import LATEST_S
from hpctrip.sim.stated_units import seconds
from hpctrip.sim.times import TimeZone, column_us, utc


@AVAILABILITY.add
class Events(AvailabilityModel):
    """Events such as a demand response or a maintenance, one per row of a CSV file: `site` (its name or number) or
    `group` (one of the sites' file), `start_s` (simulated) or `start` (a date), `duration_s`, and, if wanted, `depth`,
    the share of its power that a site does without (absent: 1), and `notice_s`, how long before they are announced
    (absent: 0). Names of times may end in `_min`, `_h` or `_d` instead.

    Of events that overlap, the deepest counts. Where the depth is 1 the site is out: it is not asked, and what it has
    begun stands still. Policies know an event from its announcement on.
    """

    kind = "events"
    path: Annotated[PathName, Reads()]
    """The CSV file."""
    timezone: TimeZone = "UTC"
    """Time zone of dates without an offset, e.g. "Europe/Madrid"."""

    def availability(self, place: str, around: Surroundings) -> ListedEvents:
        """Read the file. InputError names the line that is wrong."""
        table = read_table(self.path, f"{place}.path = {self.path!r}")
        num_sites = around.num_sites
        start, start_s = _start_s(table, around, self.timezone)
        duration, duration_s = seconds(table, "duration")
        notice, notice_s = seconds(table, "notice", absent=0.0)
        depth = table.numbers("depth") if "depth" in table.columns else np.ones(len(start_s))
        begins = f"; it begins at {utc(around.begin_us[0])} UTC" if start == "start" else ""
        problem = f"is before the start of the simulated time{begins}"
        table.refuse(start, start_s < 0, problem, "give what is left of an event that is under way")
        table.refuse(start, start_s >= LATEST_S, "is later than any run", "dates are in a column start")
        table.refuse(duration, duration_s <= 0, "is not above 0")
        table.refuse("depth", (depth <= 0) | (depth > 1), "is not above 0 and at most 1")
        table.refuse(notice, notice_s < 0, "is below 0")
        of_group = np.zeros(num_sites, np.int64)
        if "group" in table.columns:
            groups, of_group = np.unique(around.columns.get("group", [""] * num_sites), return_inverse=True)
            named = [*filter(None, groups.tolist())]
            unknown = ~np.isin(table.columns["group"], named)
            table.refuse("group", unknown, "is no group of the sites", unknown_name("", named))
            unit = num_sites + np.searchsorted(groups, table.columns["group"])
        else:
            unit = around.sites_of(table)
        times = np.stack([start_s, start_s + duration_s, start_s - notice_s])
        return ListedEvents(place, unit, times, depth, np.stack([np.arange(num_sites), num_sites + of_group]))


def _start_s(table: Table, around: Surroundings, timezone: str) -> tuple[str, np.ndarray]:
    """(column, simulated times) of when the events of a table begin."""
    if "start" not in table.columns:
        return seconds(table, "start")
    if len(around.begin_us) != 1:
        problem = "has dates, but the input has no date at which simulated time begins"
        if around.begin_us:
            problem = "has dates, but the series of the input begin at different ones"
        raise InputError(table.place, problem, "give simulated times in a column start_s")
    return "start", (column_us(table, "start", timezone) - around.begin_us[0]) / 1e6


class ListedEvents(Availability):
    """M events of some units: sites, or groups of them."""

    is_awaited = True

    def __init__(
        self, place: str, unit: np.ndarray, times_s: np.ndarray, depth: np.ndarray, units_of: np.ndarray
    ):
        """M events from the input table `place`. Event m concerns `unit[m]`; `times_s` [3, M] are start, end and
        announcement, `depth` [M] the share of power that is lost. `units_of` [2, N]: the two units of each site."""
        super().__init__(units_of.shape[1])
        self.place = place
        self.unit, self.depth, self._units_of, self._times_s = unit, depth, units_of, times_s
        self.start_s, self.end_s, self.announced_s = times_s

    def at(self, clock_s: float) -> np.ndarray:
        """What the deepest event leaves of each site's power, [N]."""
        now = (self.start_s <= clock_s) & (clock_s < self.end_s)
        return self._of_sites(1 - self.depth[now], now, 1.0)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which an event begins or ends; inf: never."""
        changes = np.concatenate([self.start_s, self.end_s])
        return float(changes[changes > clock_s].min(initial=np.inf))

    def among(self, sites: np.ndarray, until_s: float) -> ListedEvents:
        """The events of these sites [n], which are numbered from 0."""
        return ListedEvents(self.place, self.unit, self._times_s, self.depth, self._units_of[:, sites])

    def sites_of(self, event: int) -> np.ndarray:
        """The sites that an event concerns."""
        return np.flatnonzero((self._units_of == self.unit[event]).any(axis=0))

    def known(self, clock_s: float) -> ListedEvents:
        """Those that have been announced by a time."""
        known = self.announced_s <= clock_s
        times_s, depth = self._times_s[:, known], self.depth[known]
        return ListedEvents(self.place, self.unit[known], times_s, depth, self._units_of)

    def falls_s(self, clock_s: float) -> np.ndarray:
        """When the next announced event of each site begins, [N]; inf: none is announced."""
        ahead = (self.announced_s <= clock_s) & (self.start_s > clock_s)
        return self._of_sites(self.start_s[ahead], ahead, np.inf)

    def _of_sites(self, values: np.ndarray, those: np.ndarray, usual: float) -> np.ndarray:
        """The smallest value [N] of those events [M] bool which concern each site, `usual` where none does."""
        by_unit = np.full(1 + max(self.unit.max(initial=0), self._units_of.max(initial=0)), usual)
        np.minimum.at(by_unit, self.unit[those], values)
        return by_unit[self._units_of].min(axis=0)
