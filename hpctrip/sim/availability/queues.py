"""Waits in batch queues: how long a site that is asked waits until its job begins."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds
from hpctrip.config.sources import Reads
from hpctrip.sim.availability.base import AVAILABILITY, Availability, AvailabilityModel, Surroundings
from hpctrip.sim.stated_units import seconds
from hpctrip.sim.timing import LONGEST_ROUND_S


@AVAILABILITY.add
class Queue(AvailabilityModel):
    """A batch queue at every site: a site that is asked computes when its job has waited for so long. A job in a queue
    holds no node, so it draws no power. Its deadline counts from when it was asked."""

    kind = "queue"
    wait_s: Seconds | None = Field(None, ge=0, le=LONGEST_ROUND_S)
    """Wait of every job at every site; with `sigma`, the median."""
    path: Annotated[PathName | None, Reads()] = None
    """Instead, a CSV file with a column `wait_s` (`_min`, `_h`). Each job has one of the waits, drawn from the stream
    (seed, "queue", round); with a column `start_s`, that of the last row which starts before it is asked. With a column
    `site` (names or numbers) each site has its own rows."""
    sigma: float = Field(0.0, ge=0, le=10)
    """Standard deviation of the log of a factor of median 1 by which each wait is multiplied: waits are lognormal."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.wait_s is None) == (self.path is None):
            raise ValueError("give either wait_s or path")
        return self

    def availability(self, place: str, around: Surroundings) -> Waits:
        """The waits. InputError names the line of the CSV file that is wrong, or a site without waits."""
        num_sites = around.num_sites
        if self.path is None:
            rows = np.array([[np.nan, self.wait_s]])
            return Waits(num_sites, around.seed, np.zeros(1, np.int64), rows, self.sigma)
        table = read_table(self.path, f"{place}.path = {self.path!r}")
        wait, wait_s = seconds(table, "wait")
        table.refuse(wait, (wait_s < 0) | (wait_s > LONGEST_ROUND_S), "is no wait of 0 s to ten years")
        _, start_s = seconds(table, "start", absent=np.nan)
        site = around.sites_of(table) if "site" in table.columns else np.zeros(len(wait_s), np.int64)
        if "site" in table.columns and (lacking := np.setdiff1d(np.arange(num_sites), site)).size:
            raise InputError(table.place, f"has no wait of site {lacking[0]}", "give each site a row")
        return Waits(num_sites, around.seed, site, np.column_stack([start_s, wait_s]), self.sigma)


class Waits(Availability):
    """Waits that are drawn, or follow from the time, at every site; sites are always available."""

    is_awaited = has_queues = True

    def __init__(self, num_sites: int, seed: int, site: np.ndarray, rows: np.ndarray, sigma: float):
        """`rows` are (start_s, wait_s) [R, 2], those of `site` [R]; where all are of site 0, they are those of every
        site. A start_s of NaN: a row is drawn."""
        super().__init__(num_sites)
        order = np.lexsort((rows[:, 0], site))
        self._seed, self._sigma, self._owner = seed, sigma, site[order]
        self._start_s, self._wait_s = rows[order].T
        self._count = np.bincount(site)
        self._of = np.arange(num_sites) if len(self._count) > 1 else np.zeros(num_sites, np.int64)
        self._round, self._draws = 0, np.zeros((2, 0))

    def wait_s(self, round: int, start_s: float, sites: np.ndarray) -> np.ndarray:
        """The waits of these sites [n], drawn for all sites of a round so that they do not depend on the cohort."""
        if round != self._round:  # what was drawn last is only saved work
            rng = stream(self._seed, "queue", round)
            self._draws = np.stack([rng.uniform(size=self.num_sites), rng.standard_normal(self.num_sites)])
            self._round = round
        (share, normal), of = self._draws[:, sites], self._of[sites]
        if np.isnan(self._start_s[0]):
            row = np.floor(share * self._count[of]).astype(np.int64)
        else:
            begun = np.bincount(self._owner[self._start_s <= start_s], minlength=len(self._count))
            row = np.maximum(begun[of] - 1, 0)
        first = np.cumsum(self._count) - self._count
        return self._wait_s[first[of] + row] * np.exp(self._sigma * normal)
