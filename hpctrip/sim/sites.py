"""Placement of the sites: distances to the aggregator (paper Sec. 5.1: 100 sites, 100 to 10,000 miles)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.units import MILE_M, Metres
from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.sources import Reads

SITES = Registry("sites", default="powerlaw")


class SitePlacement(Component):
    """Base of all placements of sites around the aggregator."""

    def distances_m(self, seed: int) -> np.ndarray:
        """Distance d_i of every site to the aggregator, [N] metres."""
        raise NotImplementedError

    def labels(self, column: str) -> Sequence[str]:
        """A text for every site, [N], in a column of the file that sites are read from. InputError where there is
        none."""
        problem = f"sites of kind {self.kind!r} have no column {column!r}"
        raise InputError("sites", problem, 'use sites.kind = "csv"')

    def checked_distances_m(self, seed: int) -> np.ndarray:
        """The distances. InputError where they are not one or more finite numbers of 0 or more."""
        distances = np.atleast_1d(self.distances_m(seed))
        place, what = config_key("sites", self), "the distances"
        return numbers(distances, (max(1, distances.size),), 0.0, np.finfo(float).max, place, what)


class _Drawn(SitePlacement):
    num_sites: int = Field(100, ge=1, le=10_000_000)
    """Number of sites N."""
    min_distance_m: Metres = Field(100 * MILE_M, ge=0)
    """Distance of the nearest possible site."""
    max_distance_m: Metres = Field(10_000 * MILE_M, ge=0)
    """Distance of the farthest possible site."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_distance_m > self.max_distance_m:
            low, high = self.min_distance_m, self.max_distance_m
            raise ValueError(f"min_distance_m = {low:g} is above max_distance_m = {high:g}")
        return self

    def _uniforms(self, seed: int) -> np.ndarray:
        return stream(seed, "sites").uniform(size=self.num_sites)

    def _between(self, share: np.ndarray) -> np.ndarray:
        return self.min_distance_m + (self.max_distance_m - self.min_distance_m) * share


@SITES.add
class PowerLaw(_Drawn):
    """d = min + (max - min) u^exponent. With the default exponent about 22 of 100 sites lie inside 1000 miles."""

    kind = "powerlaw"
    exponent: float = Field(1.584, gt=0)
    """Above 1: sites crowd near the aggregator. 1.584 = ln(900/9900) / ln(0.22): a 22 % chance of 1000 miles."""

    def distances_m(self, seed: int) -> np.ndarray:
        """N independent draws from the stream (seed, "sites")."""
        return self._between(self._uniforms(seed) ** self.exponent)


@SITES.add
class UniformSites(_Drawn):
    """Distances drawn evenly between the nearest and the farthest."""

    kind = "uniform"

    def distances_m(self, seed: int) -> np.ndarray:
        """N independent draws from the stream (seed, "sites")."""
        return self._between(self._uniforms(seed))


@SITES.add
class Quota(_Drawn):
    """An exact number of sites inside a radius, evenly drawn inside and outside (the paper has 22 of 100)."""

    kind = "quota"
    near_fraction: float = Field(0.22, ge=0, le=1)
    """Share of the sites inside the radius; the count is rounded."""
    radius_m: Metres = Field(1000 * MILE_M, ge=0)
    """The radius."""

    @model_validator(mode="after")
    def _radius_between(self) -> Self:
        if not self.min_distance_m <= self.radius_m <= self.max_distance_m:
            raise ValueError(f"radius_m = {self.radius_m:g} is outside min_distance_m..max_distance_m")
        return self

    def distances_m(self, seed: int) -> np.ndarray:
        """The near sites first, then the far ones."""
        near = np.arange(self.num_sites) < round(self.near_fraction * self.num_sites)
        low = np.where(near, self.min_distance_m, self.radius_m)
        high = np.where(near, self.radius_m, self.max_distance_m)
        return low + (high - low) * self._uniforms(seed)


@SITES.add
class CsvSites(SitePlacement):
    """Sites from a CSV file with a header and one column `distance_m` or `distance_mi`; other columns are ignored,
    unless a signal names the one that holds zones (carbon.site_column)."""

    kind = "csv"
    path: Annotated[PathName, Reads()]
    """The CSV file."""

    def distances_m(self, seed: int) -> np.ndarray:
        """The file's rows in order; InputError names the file and the line that is wrong."""
        table = self._table()
        units_m = {"distance_m": 1.0, "distance_mi": MILE_M}
        present = [name for name in units_m if name in table.columns]
        if len(present) != 1:
            number, columns = "more than one" if present else "no", ", ".join(table.columns)
            problem = f"{number} column distance_m or distance_mi among: {columns}"
            raise InputError(table.place, problem, "give one of them")
        (name,) = present
        with np.errstate(over="ignore"):  # refused below
            distances_m = table.numbers(name) * units_m[name]
        if len(distances_m) == 0:
            raise InputError(table.place, "no rows: at least one site is needed")
        table.refuse(name, ~((distances_m >= 0) & np.isfinite(distances_m)), "is no distance of 0 or more")
        return distances_m

    def labels(self, column: str) -> Sequence[str]:
        """The file's column."""
        table = self._table()
        table.require(column)
        return table.texts(column)

    def _table(self) -> Table:
        return read_table(self.path, f"sites.path = {self.path!r}")
