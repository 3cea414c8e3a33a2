"""Placement of the sites: distances to the aggregator (paper Sec. 5.1: 100 sites, 100 to 10,000 miles), drawn or read
from a file, which may hold more about each site."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.text import unknown_name
from hpctrip.base.units import MILE_M, Metres
from hpctrip.base.validate import columns, numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads

SITES = Registry("sites", default="powerlaw")
Sites = np.ndarray | slice
"""Indices of sites [n], or all of them."""
FACT = "fact_"
"""Beginning of the names of columns of /sites that are recorded, and shown, but used for nothing (`sites.facts`)."""


class SitePlacement(Component):
    """Base of all placements of sites around the aggregator."""

    def distances_m(self, seed: int) -> np.ndarray:
        """Distance d_i of every site to the aggregator, [N] metres."""
        raise NotImplementedError

    def columns(self) -> Mapping[str, np.ndarray]:
        """Properties of the sites other than their distance: {name: numbers, NaN where unknown, or texts, [N]}.

        `rtt_s` and `bandwidth_bps` take the place of [network]; `num_gpus`, `gpu` (a name) and `contract_w` that of
        [throughput], `seconds_per_sample` that of [timing], `g_per_kwh` and `cost_per_kwh` that of [carbon] and
        [price]; `power_trace` names a power trace, `region` a region of [network]. All of them become columns of
        /sites. By default none.
        """
        return {}

    def check_columns(self, used: Collection[str]) -> None:
        """InputError where the sites' file has a column that nothing reads; `used` are those that other tables name by
        their `site_column`."""

    def drawn(self) -> list[str]:
        """Descriptions of the values that the sites' file leaves open, and of what takes their place."""
        return []

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

    def checked_columns(self, num_sites: int, region_column: str | None = None) -> Mapping[str, np.ndarray]:
        """`columns`, with `region` from the column of the file that names the regions, if any. InputError where one is
        not [N] numbers or texts."""
        own = columns(self.columns(), num_sites, config_key("sites", self), "its columns")
        if region_column is None:
            return own
        region = own[region_column] if region_column in own else np.array(self.labels(region_column))
        return {**own, "region": region}


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
    """Above 1, sites concentrate near the aggregator. 1.584 = ln(900/9900) / ln(0.22): a 22 % chance of 1000 miles."""

    def distances_m(self, seed: int) -> np.ndarray:
        """N independent draws from the stream (seed, "sites")."""
        return self._between(self._uniforms(seed) ** self.exponent)


@SITES.add
class UniformSites(_Drawn):
    """Distances drawn uniformly between the nearest and the farthest."""

    kind = "uniform"

    def distances_m(self, seed: int) -> np.ndarray:
        """N independent draws from the stream (seed, "sites")."""
        return self._between(self._uniforms(seed))


@SITES.add
class Quota(_Drawn):
    """An exact number of sites inside a radius, drawn uniformly inside and outside (the paper has 22 of 100)."""

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


_NUMBERS: dict[str, dict[str, float]] = {
    "distance_m": {"distance_m": 1.0, "distance_km": 1e3, "distance_mi": MILE_M},
    "rtt_s": {"rtt_s": 1.0, "rtt_ms": 1e-3},
    "bandwidth_bps": {"bandwidth_bps": 1.0, "bandwidth_mbps": 1e6, "bandwidth_gbps": 1e9},
    "num_gpus": {"gpus": 1.0},
    "seconds_per_sample": {"seconds_per_sample": 1.0},
    "contract_w": {"contract_mw": 1e6},
    "cost_per_kwh": {"price_per_mwh": 1e-3},
    "g_per_kwh": {"carbon_g_per_kwh": 1.0},
    "latitude": {"latitude": 1.0},
    "longitude": {"longitude": 1.0},
}
"""{quantity: {column of a file: its unit, in that of the quantity}}."""
_BOUNDS = {
    "distance_m": (0.0, 1e12),
    "rtt_s": (0.0, 1e6),
    "bandwidth_bps": (1.0, 1e18),
    "num_gpus": (1.0, 1e9),
    "seconds_per_sample": (1e-9, 1e9),
    "contract_w": (1.0, 1e15),
    "cost_per_kwh": (-1e6, 1e6),
    "g_per_kwh": (0.0, 1e6),
    "latitude": (-90.0, 90.0),
    "longitude": (-180.0, 180.0),
}
_TEXTS = ("name", "group", "region", "gpu", "power_trace")
_EARTH_M = 6_371_008.8
"""Mean radius."""
_FIBRE_M_PER_S = 2e8


@SITES.add
class CsvSites(SitePlacement):
    """Sites from a CSV file, one per row, with any of these columns: `name`, `distance_m` (`_km`, `_mi`), `latitude`
    and `longitude` (degrees), `rtt_ms` (`_s`: round-trip time), `bandwidth_mbps` (`_gbps`, `_bps`: bits per second),
    `gpus`, `gpu` (the name of a GPU of [throughput]), `seconds_per_sample` (at full power), `contract_mw` (power at
    P = 1), `price_per_mwh`, `carbon_g_per_kwh`, `power_trace` (the power trace that the site follows), `group`,
    `region` (of a matrix of links), and any column named by a signal (carbon.site_column), by such a matrix
    (network.site_column) or by `facts`.

    A field may be empty. A missing distance is computed on the globe, or else from half the round-trip time in fibre,
    or else drawn as in `powerlaw`. Other missing values come from [network], [throughput], [timing], [power],
    [carbon] and [price].
    """

    kind = "csv"
    rules = 2
    """2: columns besides the distance count; before, they were ignored."""
    path: Annotated[PathName, Reads()]
    """The CSV file."""
    aggregator: Added[list[float] | None] = Field(None, min_length=2, max_length=2)
    """Latitude and longitude of the aggregator in degrees, for distances on the globe."""
    facts: Added[list[str]] = []
    """Further columns of the file, which are recorded and shown but change nothing, e.g. ["operator", "cooling"]."""

    def distances_m(self, seed: int) -> np.ndarray:
        """The file's rows in order; InputError names the file and the line that is wrong."""
        origins = self._distances_m(seed)
        return np.stack([*origins.values()])[_first_known(origins), np.arange(len(self._table().lines))]

    def columns(self) -> Mapping[str, np.ndarray]:
        """The file's columns, but for its distances."""
        table, numbers = self._table(), self._numbers()
        texts = {name: np.array(table.columns[name]) for name in _TEXTS if name in table.columns}
        for fact in self.facts:
            values = np.array(table.column(fact))
            with suppress(InputError):  # not all of them are numbers
                values = table.numbers(fact, may_lack=True)
            texts[FACT + re.sub(r"\W", "_", fact)] = values
        return texts | {name: values for name, values in numbers.items() if name != "distance_m"}

    def check_columns(self, used: Collection[str]) -> None:
        """InputError for a column that is neither known nor used."""
        table = self._table()
        known = [*_TEXTS, *(column for units in _NUMBERS.values() for column in units)]
        for name in table.columns:
            if name not in known and name not in used and name not in self.facts:
                problem = f"has a column {name!r}, which nothing reads; {unknown_name(name, known)}"
                keep = f"sites.facts = {json.dumps([*self.facts, name])}"
                raise InputError(
                    table.place, problem, f"rename it, leave it out, or keep it as a fact: {keep}"
                )

    def drawn(self) -> list[str]:
        """A line for each quantity that the file lacks at some site."""
        numbers, number = self._numbers(), len(self._table().lines)
        origins = self._distances_m(0)
        used = np.bincount(_first_known(origins), minlength=len(origins))
        lines = {f"distance {origin}": count for origin, count in zip(origins, used, strict=True)}
        lines.pop("distance as in the file")
        for text, name in _ELSE.items():
            lines[text] = np.isnan(numbers[name]).sum() if name in numbers else number
        return [f"{text}: {count} of {number} sites" for text, count in lines.items() if count]

    def labels(self, column: str) -> Sequence[str]:
        """The file's column."""
        table = self._table()
        table.require(column)
        return table.texts(column)

    def _distances_m(self, seed: int) -> dict[str, np.ndarray]:
        """{origin of a distance: distances [N], NaN where unknown}, the best first; the last is never NaN."""
        numbers, number = self._numbers(), len(self._table().lines)
        unknown = np.full(number, np.nan)
        in_file = numbers.get("distance_m", unknown)
        return {
            "as in the file": in_file,
            "on the globe": self._on_globe_m(numbers) if np.isnan(in_file).any() else unknown,
            "by half the round-trip time in fibre": numbers.get("rtt_s", unknown) / 2 * _FIBRE_M_PER_S,
            "drawn by the seed (synthetic)": PowerLaw(num_sites=number).distances_m(seed),
        }

    def _on_globe_m(self, numbers: Mapping[str, np.ndarray]) -> np.ndarray:
        """Great-circle distances to the aggregator (haversine), [N]; NaN where a position is unknown."""
        present = [name for name in ("latitude", "longitude") if name in numbers]
        if not present:
            return np.full(len(self._table().lines), np.nan)
        if len(present) == 1 or self.aggregator is None:
            problem = f"has {' and '.join(present)}; a distance on the globe needs both, and the aggregator's"
            hint = "set sites.aggregator = [latitude, longitude], or give a column distance_km"
            raise InputError(self._table().place, problem, hint)
        latitude, longitude = np.radians(numbers["latitude"]), np.radians(numbers["longitude"])
        latitude0, longitude0 = np.radians(self.aggregator)
        square = np.sin((latitude - latitude0) / 2) ** 2
        square += np.cos(latitude) * np.cos(latitude0) * np.sin((longitude - longitude0) / 2) ** 2
        return 2 * _EARTH_M * np.arcsin(np.sqrt(np.minimum(square, 1.0)))

    def _numbers(self) -> dict[str, np.ndarray]:
        """{quantity that the file has: [N] in its unit, NaN where a field is empty}."""
        table = self._table()
        if len(table.lines) == 0:
            raise InputError(table.place, "no rows: at least one site is needed")
        return measured(table)

    def _table(self) -> Table:
        return read_table(self.path, f"sites.path = {self.path!r}")


_ELSE = {
    "round-trip time as [network] says": "rtt_s",
    "bandwidth as [network] says": "bandwidth_bps",
    "GPUs as throughput.num_gpus": "num_gpus",
}
"""{what takes the place of a quantity: the quantity}."""


def measured(table: Table) -> dict[str, np.ndarray]:
    """{quantity that a table has: its values [R] in its unit, NaN where a field is empty}. InputError names the first
    line with a value out of bounds."""
    numbers = {}
    for quantity, units in _NUMBERS.items():
        if column := table.one_of(units):
            with np.errstate(over="ignore"):  # refused below
                values = table.numbers(column, may_lack=True) * units[column]
            low, high = _BOUNDS[quantity]
            wrong, unit = (values < low) | (values > high), units[column]
            table.refuse(column, wrong, f"is outside {low / unit:g} to {high / unit:g}")
            numbers[quantity] = values
    return numbers


def _first_known(origins: Mapping[str, np.ndarray]) -> np.ndarray:
    """[N]: number of the first of the arrays [N] that is not NaN."""
    return np.isnan(np.stack([*origins.values()])).argmin(axis=0)


def numbered(site: int, names: Sequence[str]) -> str:
    """A site in messages, with its name where `names` [N] are not empty: "site 3 (Oslo)"."""
    name = names[site] if 0 <= site < len(names) else ""
    return f"site {site} ({name})" if name else f"site {site}"


def known(columns: Mapping[str, np.ndarray], name: str, otherwise: np.ndarray) -> np.ndarray:
    """The values of a column of the sites [N], and `otherwise` [N] where it is NaN or absent."""
    values = columns.get(name)
    return otherwise if values is None else np.where(np.isnan(values), otherwise, values)
