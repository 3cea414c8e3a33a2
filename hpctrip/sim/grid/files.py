"""Signals of the grid that are read from dated files: CSV, Electricity Maps, Britain's Carbon Intensity API.

A value holds until the next one. A missing or empty value is bridged by the one before it, as long as no gap is longer
than `longest_gap_s`; equal repeated rows count once, and rows may be in any order. All zones begin and end where the
shortest does. Shapes: Z zones, K values of a zone, R rows of a table.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName, gunzipped, read_file
from hpctrip.base.series import Signal
from hpctrip.base.text import unknown_name
from hpctrip.base.times import moment_us, moments_us, time_zone, zone
from hpctrip.base.units import Seconds
from hpctrip.config.sources import Reads, files_at
from hpctrip.sim.grid.signals import HIGHEST, LOWEST, SIGNALS, GridSignal, SignalModel, zones_by_seed
from hpctrip.sim.sites import SitePlacement

_PER_KWH = {"per kWh": 1.0, "per MWh": 1e-3}
_TIME, _ZONES = "Datetime (UTC)", ("Zone Id", "Zone id")
"""Columns of Electricity Maps."""
_REGIONS = range(1, 15)
"""The regions of Britain's network operators; 15 to 18 are England, Scotland, Wales and GB."""


class ZoneValues(NamedTuple):
    """The values of one zone in one file."""

    place: str
    zone: str
    time_us: np.ndarray
    """[K] microseconds since 1970."""
    value: np.ndarray
    """[K] per kilowatt-hour; NaN where it is missing."""


def signal_files(value: str) -> list[Path]:
    """The files of a path, a folder or a pattern. InputError where there are none."""
    is_pattern = any(c in value for c in "*?[")
    paths = [Path(name) for name in sorted(glob.glob(value))] if is_pattern else files_at(value)
    if not paths:
        raise InputError(value, "names no file", "give a file, a folder or a pattern of files")
    return paths


def _start(text: str) -> str:
    try:
        moment_us(text, zone("UTC"))
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return text


class FileSignal(SignalModel):
    """Base of the signals from files."""

    path: Annotated[PathName, Reads(find=signal_files)]
    """A file, a folder or a pattern of files; several files may be of one zone or of several."""
    start: Annotated[str, AfterValidator(_start)] | None = None
    """When simulated time begins, in UTC unless it says otherwise, e.g. "2022-06-01T00:00". Absent: with the data."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """When simulated time outlasts the data: start them again, or stop with an error."""
    site_column: str | None = None
    """The column of the sites' CSV file that names each site's zone; absent: each draws one by the seed."""
    longest_gap_s: Seconds = Field(6 * 3600.0, gt=0)
    """Missing values are bridged by the one before, up to this time between two of them; a longer gap is an error."""

    def read(self, path: Path, place: str) -> Sequence[ZoneValues]:
        """The zones in one file. Raises InputError that names file, line and value."""
        raise NotImplementedError

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """Read the files and assign a zone to every site."""
        read = [
            series
            for path in signal_files(self.path)
            for series in self.read(path, f"{table}.path = {str(path)!r}")
        ]
        names = sorted({series.zone for series in read})
        joined = [_joined([s for s in read if s.zone == name], table, self.longest_gap_s) for name in names]
        first_us = max(int(series.time_us[0]) for series in joined)
        end_us = min(_end_us(series) for series in joined)
        if end_us <= first_us:
            raise InputError(
                f"{table}.path = {self.path!r}",
                "its zones have no time in common",
                "give files of one period",
            )
        duration_s, offset_s = (end_us - first_us) / 1e6, 0.0
        if self.start is not None:
            offset_s = (moment_us(self.start, zone("UTC")) - first_us) / 1e6
            if not 0 <= offset_s < duration_s:
                problem = f"lies outside the data, {_date(first_us)} to {_date(end_us)} UTC"
                raise InputError(f"{table}.start = {self.start!r}", problem)
        return GridSignal(
            names,
            [_cut(series, first_us, duration_s) for series in joined],
            self._zones(names, table, sites, num_sites, seed),
            any("synthetic" in series.place.lower() for series in joined),
            offset_s,
            np.inf if self.at_end == "wrap" else duration_s - offset_s,
            table,
        )

    def _zones(
        self, names: Sequence[str], table: str, sites: SitePlacement, num_sites: int, seed: int
    ) -> np.ndarray:
        if self.site_column is None:
            return zones_by_seed(num_sites, len(names), seed)
        wanted = sites.labels(self.site_column)
        for site, name in enumerate(wanted):
            if name not in names:
                problem = f"site {site} is in {name!r}, of which there are no data"
                raise InputError(
                    f"{table}.site_column = {self.site_column!r}", problem, unknown_name(name, names)
                )
        return np.array([names.index(name) for name in wanted], dtype=np.int64)


def _joined(parts: Sequence[ZoneValues], table: str, longest_gap_s: float) -> ZoneValues:
    """The values of one zone by rising time, without missing ones. InputError where rows contradict each other or a
    gap is too long."""
    place, name = parts[0].place, parts[0].zone
    time_us, value = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    present = ~np.isnan(value)
    time_us, value = time_us[present], value[present]
    low = LOWEST[table]
    if len(value) < 2:
        raise InputError(place, f"holds {len(value)} values of {name}", "give two or more")
    if value.min() < low or value.max() > HIGHEST:
        wrong = value.min() if value.min() < low else value.max()
        raise InputError(place, f"holds {wrong:g} of {name}", f"a kilowatt-hour has {low:g} to {HIGHEST:g}")
    order = np.lexsort((value, time_us))
    time_us, value = time_us[order], value[order]
    same = np.diff(time_us) == 0
    if (same & (np.diff(value) != 0)).any():
        at = int(np.flatnonzero(same & (np.diff(value) != 0))[0])
        problem = f"holds {value[at]:g} and {value[at + 1]:g} of {name} at {_date(time_us[at])} UTC"
        raise InputError(place, problem, "keep one of them")
    first = np.concatenate([[True], ~same])
    time_us, value = time_us[first], value[first]
    steps_s = np.diff(time_us) / 1e6
    if not len(steps_s):
        raise InputError(place, f"holds one time of {name}", "give two or more")
    if steps_s.max() > longest_gap_s:
        at = int(steps_s.argmax())
        raise InputError(
            place,
            f"has no value of {name} for {steps_s[at] / 3600:g} h after {_date(time_us[at])} UTC",
            f"fill the gap, or raise {table}.longest_gap_s (now {longest_gap_s:g})",
        )
    return ZoneValues(place, name, time_us, value)


def _date(time_us: int) -> str:
    """A time as in "2022-06-01T00:00:00"."""
    return str(np.datetime64(int(time_us), "us").astype("datetime64[s]"))


def _end_us(series: ZoneValues) -> int:
    """The end of the data: the last value holds for the median time between two."""
    return int(series.time_us[-1]) + int(np.median(np.diff(series.time_us)))


def _cut(series: ZoneValues, first_us: int, duration_s: float) -> Signal:
    """The values from `first_us` on, for `duration_s`."""
    start_s = (series.time_us - first_us) / 1e6
    first = int(np.searchsorted(start_s, 0.0, side="right")) - 1
    inside = slice(first, int(np.searchsorted(start_s, duration_s, side="left")))
    return Signal(np.maximum(start_s[inside], 0.0), series.value[inside], duration_s)


@SIGNALS.add
class CsvSignal(FileSignal):
    """CSV files with a column of times and one of numbers for a kilowatt-hour. A zone is a file, or a value of a
    column.

    Where clocks are set back, the second of two equal local times is the later one; times that are skipped in spring
    are refused.
    """

    kind = "csv"
    time_column: str = "time"
    """Column of the times from which values hold: ISO 8601."""
    value_column: str = "per_kwh"
    """Column of the values: grams of CO2 in [carbon], money in [price]. Empty: missing."""
    zone_column: str | None = None
    """Column that names the zone of a row; absent: a file is a zone, called by its name up to the first dot."""
    timezone: Annotated[str, AfterValidator(time_zone)] = "UTC"
    """Of times that do not say it themselves, e.g. "Europe/Madrid"."""
    unit: Literal["per kWh", "per MWh"] = "per kWh"
    """What a value is for."""

    def read(self, path: Path, place: str) -> Sequence[ZoneValues]:
        """Read the columns that the input names."""
        table = read_table(path, place, may_comment=True)
        table.require(self.time_column, self.value_column, *filter(None, [self.zone_column]))
        stem = path.name.partition(".")[0]
        zones = table.texts(self.zone_column) if self.zone_column else [stem] * len(table.lines)
        time_us = moments_us(table, self.time_column, self.timezone, zones)
        value = table.numbers(self.value_column, may_lack=True) * _PER_KWH[self.unit]
        return _by_zone(place, zones, time_us, value)


def _by_zone(place: str, zones: Sequence[str], time_us: np.ndarray, value: np.ndarray) -> list[ZoneValues]:
    """Group the rows of a table, [R] each, by zone."""
    names = np.array(zones)
    return [ZoneValues(place, str(n), time_us[names == n], value[names == n]) for n in np.unique(names)]


@SIGNALS.add
class ElectricityMaps(FileSignal):
    """Files as Electricity Maps publishes them: `Datetime (UTC)`, `Zone Id`, and the carbon intensity in gCO2eq/kWh,
    direct and over the life cycle. Their data are under the ODbL: attribute them, and keep them apart."""

    kind = "electricity-maps"
    intensity: Literal["life-cycle", "direct"] = "life-cycle"
    """Whether what it took to build plants and to win fuels counts, too."""

    def read(self, path: Path, place: str) -> Sequence[ZoneValues]:
        """Find the publisher's columns, whose wording has changed over the years, and read them."""
        table = read_table(path, place)
        column = _column(table, "direct" if self.intensity == "direct" else r"LCA|life cycle")
        zone_column = next((name for name in _ZONES if name in table.columns), _ZONES[0])
        table.require(_TIME, zone_column)
        zones = table.texts(zone_column)
        return _by_zone(place, zones, moments_us(table, _TIME, "UTC"), table.numbers(column, may_lack=True))


def _column(table: Table, which: str) -> str:
    """The column of this carbon intensity. InputError where there is none, or it is in another unit."""
    pattern = rf"carbon intensity.*({which})"
    columns = [name for name in table.columns if re.search(pattern, name, re.IGNORECASE)]
    if len(columns) != 1:
        problem = f"has {len(columns) or 'no'} columns of a carbon intensity ({which.replace('|', ' or ')})"
        raise InputError(table.place, problem, "give a file as Electricity Maps publishes it")
    if not re.search(r"g\s*CO.{0,3}eq\s*/\s*kWh", columns[0]):
        raise InputError(
            table.place, f"{columns[0]!r} is not in gCO2eq/kWh", 'use kind = "csv" for other units'
        )
    return columns[0]


@SIGNALS.add
class UkCarbonIntensity(FileSignal):
    """Answers of api.carbonintensity.org.uk as they come, JSON: half hours in UTC with `intensity.actual` and
    `intensity.forecast` in gCO2/kWh, of the whole country, or with forecasts alone of one region or of all regions.

    An answer for all regions is one zone for each of the 14 that do not overlap; England, Scotland, Wales and GB, which
    it holds besides, are left out. The CSV files of carbonintensity.org.uk are read by kind = "csv", with time_column =
    "Datetime (UTC)" and value_column = "Actual Carbon Intensity (gCO2/kWh)".
    """

    kind = "uk-carbon-intensity"
    value: Literal["actual", "forecast", "best-known"] = "best-known"
    """Which of the two intensities; best-known: the actual one, or the forecast where that is missing."""

    def read(self, path: Path, place: str) -> Sequence[ZoneValues]:
        """Zones: GB, or a region's name."""
        try:
            answer = json.loads(gunzipped(read_file(path, place), place))
        except ValueError:
            raise InputError(
                place, "not a JSON text", "give an answer of api.carbonintensity.org.uk"
            ) from None
        zones = _zones(answer.get("data") if isinstance(answer, dict) else None, place)
        return [self._series(place, name, rows) for name, rows in zones.items()]

    def _series(self, place: str, name: str, rows: Sequence[Any]) -> ZoneValues:
        pairs = [self._row(row, f"{place}, half hour {i + 1}") for i, row in enumerate(rows)]
        time_us, value = zip(*pairs, strict=True) if pairs else ((), ())
        return ZoneValues(place, name, np.array(time_us, dtype=np.int64), np.array(value, dtype=np.float64))

    def _row(self, row: Any, place: str) -> tuple[int, float]:
        try:
            time_us, intensity = moment_us(row["from"], zone("UTC")), row["intensity"]
            actual, forecast = intensity.get("actual"), intensity.get("forecast")
        except (KeyError, TypeError, AttributeError):
            raise InputError(place, "has no `from` with an `intensity`") from None
        except ValueError as error:
            raise InputError(place, f"from {error}") from None
        best = actual if actual is not None else forecast
        value = {"actual": actual, "forecast": forecast, "best-known": best}[self.value]
        if value is None:
            return time_us, np.nan
        if type(value) not in (int, float) or not 0 <= value < 1e6:
            raise InputError(place, "has an intensity that is no number from 0 to 1e6")
        return time_us, float(value)


def _zones(data: Any, place: str) -> dict[str, list[Any]]:
    """{zone: half hours} of an answer for the country, for one region, or for all regions."""
    region = data[0] if isinstance(data, list) and len(data) == 1 else data
    if isinstance(region, dict) and isinstance(region.get("data"), list):
        name = region.get("shortname")
        return {name if isinstance(name, str) and name else "GB region": region["data"]}
    if not isinstance(data, list):
        raise InputError(place, "has no list `data`", "give an answer of api.carbonintensity.org.uk")
    if any(isinstance(row, dict) and "regions" in row for row in data):
        return _regions(data, place)
    return {"GB": data}


def _regions(data: list[Any], place: str) -> dict[str, list[Any]]:
    """{region: half hours} of an answer for all regions."""
    zones: dict[str, list[Any]] = {}
    for i, row in enumerate(data):
        try:
            for region in row["regions"]:
                if region["regionid"] in _REGIONS:
                    half_hour = {"from": row["from"], "intensity": region["intensity"]}
                    zones.setdefault(str(region["shortname"]), []).append(half_hour)
        except (KeyError, TypeError):
            problem = "has no `from` with `regions` that have `regionid`, `shortname` and `intensity`"
            raise InputError(f"{place}, half hour {i + 1}", problem) from None
    if not zones:
        raise InputError(place, "has no region of 1 to 14", "give an answer for all regions, or for one")
    return zones
