"""Signals of the grid that are read from files: CSV, Electricity Maps, Britain's Carbon Intensity API.

The rules for rows, gaps, and the common time of the zones are those of `hpctrip/sim/series.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import PathName, matching, read_unpacked
from hpctrip.base.text import unknown_name
from hpctrip.base.units import Seconds
from hpctrip.config.sources import Reads, files_in
from hpctrip.sim.calendar import shared
from hpctrip.sim.grid.signals import HIGHEST, SIGNALS, GridSignal, SignalModel, zones_by_seed
from hpctrip.sim.quantities import BY_SIGNAL
from hpctrip.sim.series import EACH, KEYS, Column, joined, layout, rows_of
from hpctrip.sim.sites import SitePlacement, numbered
from hpctrip.sim.stated_units import named_per_kwh, stated_per_kwh
from hpctrip.sim.times import SHOWN_TWICE, Moment, TimeZone, moments_us, time_column

_REGIONS = range(1, 15)
"""The regions of Britain's network operators; 15 to 18 are England, Scotland, Wales and GB."""


def signal_files(value: str) -> list[Path]:
    """The files of a path, a folder or a pattern. InputError where there are none."""
    paths = [file for path in matching(value) for file in files_in(path)]
    if not paths:
        raise InputError(value, "names no file", "give a file, a folder or a pattern of files")
    return paths


class FileSignal(SignalModel):
    """Base of the signals from files."""

    hint: ClassVar[str] = ""
    """End of the way out where two rows of a zone and time differ."""
    path: Annotated[PathName, Reads(find=signal_files)]
    """A file, a folder or a pattern of files, of one or several zones."""
    start: Moment | None = None
    """Time of the data at which simulated time starts, in UTC unless it has an offset, e.g. "2022-06-01T00:00".
    Absent: the `start` of another dated series (carbon, price, power), or else the first time common to all."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """At the end of the data: repeat them, or stop with an error."""
    site_column: str | None = None
    """Column of the sites' CSV file with each site's zone; absent: zones are drawn at random."""
    longest_gap_s: Seconds = Field(6 * 3600.0, gt=0)
    """Missing values are replaced by the previous one, in gaps up to this length; a longer gap is an error."""

    def read(self, path: Path, place: str, table: str) -> pd.DataFrame:
        """The rows of one file, as by `rows_of`: zones, and values for a kilowatt-hour. A value of higher `rank`
        replaces others of its zone and time. Raises InputError that names file, line and value."""
        raise NotImplementedError

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """Read the files and assign a zone to every site."""
        paths = {path: f"{table}.path = {str(path)!r}" for path in signal_files(self.path)}
        rows = pd.concat([self.read(path, place, table) for path, place in paths.items()]).dropna(
            subset="value"
        )
        zones = joined(rows, f"{table}.path = {self.path!r}", self.longest_gap_s, hint=self.hint)
        calendar = zones.calendar(table, self.start)
        if calendar:
            shared({table: calendar})  # its start lies within the data
        offset_s = calendar.offset_s if calendar else 0.0
        return GridSignal(
            zones.names,
            zones.signals(),
            self._zones(zones.names, table, sites, num_sites, seed),
            zones.synthetic,
            offset_s,
            np.inf if self.at_end == "wrap" else zones.duration_s - offset_s,
            table,
            calendar,
        )

    def _zones(
        self, names: Sequence[str], table: str, sites: SitePlacement, num_sites: int, seed: int
    ) -> np.ndarray:
        if self.site_column is None:
            return zones_by_seed(num_sites, len(names), seed)
        wanted = sites.labels(self.site_column)
        for site, name in enumerate(wanted):
            if name not in names:
                site = numbered(site, sites.columns().get("name", ()))
                problem = f"{site} is in {name!r}, of which there are no data"
                raise InputError(
                    f"{table}.site_column = {self.site_column!r}", problem, unknown_name(name, names)
                )
        return np.array([names.index(name) for name in wanted], dtype=np.int64)


@SIGNALS.add
class CsvSignal(FileSignal):
    """CSV files with a column of times and values per kilowatt-hour. Each file, each value of a column, or each column
    is a zone.

    When clocks are set back, the order of a zone's rows, rising or falling, distinguishes two equal local times; times
    that clocks skip in spring are refused.
    """

    kind = "csv"
    rules = 2
    """2: times that clocks show twice in rows of falling time; all dated series begin at one moment."""
    hint = SHOWN_TWICE
    time_column: str = "time"
    """Column of the start times of values: ISO 8601, or numbers if its name ends in their unit. Where there is no
    `time`, also `time_s`, `time_ms` or `time_us`."""
    value_column: str = "per_kwh"
    """Column of the values: grams of CO2 in [carbon], money in [price]. Empty fields: missing. "*": the columns beside
    the times are one of values for each zone, named with its unit as `oslo_g_per_kwh`, or `site` or `zone` and one of
    values."""
    zone_column: str | None = None
    """Column with the zone of a row; absent: each file is a zone, named by the file name up to the first dot."""
    timezone: TimeZone = "UTC"
    """Time zone of times without an offset, e.g. "Europe/Madrid"."""
    unit: str | None = None
    """Unit of the values: "per kWh" or "per MWh", which means grams of CO2 or money; in [carbon] also "kg per kWh",
    "kg per MWh", "t per MWh" or "lb per MWh". Absent: the one in which the name `value_column` ends, as `per_kwh`,
    `g_per_kwh` or `price_per_mwh`."""

    @property
    def _unit(self) -> str | None:
        """The unit in force; None: it is not stated."""
        return self.unit or stated_per_kwh(self.value_column)

    def resolve(self) -> Self:
        """The signal with its unit in force."""
        return super().resolve().with_defaults(unit=self._unit)

    def read(self, path: Path, place: str, table: str) -> pd.DataFrame:
        """Read the columns that the input names. InputError where their unit is not stated, or not as in the name."""
        file = read_table(path, place, may_comment=True)
        is_numbered = self.time_column == "time" and "time" not in file.columns
        time = time_column(file) if is_numbered else self.time_column
        keys = [self.zone_column] if self.zone_column else []
        file.require(time, *keys)
        if self.value_column == EACH:
            columns = layout(file, time, keys or KEYS)
        elif self.value_column in file.columns:
            columns = {self.value_column: file.texts(*keys) if keys else path.name.partition(".")[0]}
        else:
            problem = f"has no column {self.value_column!r}; {unknown_name(self.value_column, file.columns)}"
            layouts = f"a column of each zone, or for {time}, zone and one of values"
            hint = f'set {table}.value_column, to "{EACH}" for {layouts}'
            raise InputError(place, problem, hint)
        values = {}
        for column, zone in columns.items():
            name, factor = named_per_kwh(table, column, self._unit)
            zone = name if zone == column else zone
            values[column] = Column(zone, factor, BY_SIGNAL[table].lowest_per_kwh, HIGHEST)
        return rows_of(file, values, time, self.timezone)


@SIGNALS.add
class ElectricityMaps(FileSignal):
    """Files as Electricity Maps publishes them: `Datetime (UTC)`, `Zone Id`, and the carbon intensity in gCO2eq/kWh,
    direct and over the life cycle. The data are under the ODbL: attribute them, and keep them separate."""

    kind = "electricity-maps"
    intensity: Literal["life-cycle", "direct"] = "life-cycle"
    """life-cycle includes emissions from building the plants and from fuel production."""

    def read(self, path: Path, place: str, table: str) -> pd.DataFrame:
        """Read the publisher's columns, whose wording has changed over the years."""
        file = read_table(path, place, may_comment=True)
        which = "direct" if self.intensity == "direct" else "LCA|life cycle"
        pattern = re.compile(rf"carbon intensity.*({which})", re.IGNORECASE)
        columns = list(filter(pattern.search, file.columns))
        if len(columns) != 1:
            number, wanted = len(columns) or "no", which.replace("|", " or ")
            problem = f"has {number} columns of a carbon intensity ({wanted})"
            raise InputError(place, problem, "give a file as Electricity Maps publishes it")
        if not re.search(r"\bg\s*CO.{0,3}eq\s*/\s*kWh", columns[0]):
            problem = f"{columns[0]!r} is not in gCO2eq/kWh"
            raise InputError(place, problem, 'use kind = "csv" for other units')
        zones = file.texts("Zone id" if "Zone id" in file.columns else "Zone Id")
        return rows_of(file, {columns[0]: Column(zones, high=HIGHEST)}, "Datetime (UTC)")


@SIGNALS.add
class UkCarbonIntensity(FileSignal):
    """Unchanged JSON responses of api.carbonintensity.org.uk: half hours in UTC with `intensity.actual` and
    `intensity.forecast` in gCO2/kWh, of the whole country, or only with forecasts, of one region or of all regions.

    A response for all regions gives one zone for each of the 14 non-overlapping regions; its values for England,
    Scotland, Wales and GB are ignored. The CSV files of carbonintensity.org.uk are read by kind = "csv", with
    time_column = "Datetime (UTC)", value_column = "Actual Carbon Intensity (gCO2/kWh)" and unit = "per kWh".
    """

    kind = "uk-carbon-intensity"
    rules = 2
    """2: all dated series begin at one moment."""
    value: Literal["actual", "forecast", "best-known"] = "best-known"
    """Actual or forecast intensity; best-known: the actual one if available, otherwise the forecast."""

    def read(self, path: Path, place: str, table: str) -> pd.DataFrame:
        """Zones: GB, or the names of regions."""
        text = read_unpacked(path, place)
        try:
            rows = [
                (zone, half_hour["from"], *self._intensity(**half_hour["intensity"]))
                for zone, half_hour in _half_hours(json.loads(text)["data"])
            ]
            frame = pd.DataFrame(rows, columns=["series", "time_us", "value", "rank"])
            frame = frame.assign(time_us=moments_us(frame["time_us"])).astype({"value": float})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            problem = f"is not an answer of api.carbonintensity.org.uk ({type(error).__name__}: {error})"
            raise InputError(place, problem, "give one as it was sent") from None
        wrong = frame[(frame.value < 0) | (frame.value > HIGHEST)]
        if len(wrong):
            problem = f"holds {wrong.value.iloc[0]:g} of {wrong.series.iloc[0]}"
            raise InputError(place, problem, f"a kilowatt-hour has 0 to {HIGHEST:g} g")
        return frame.assign(place=place, line=0, is_dated=True, synthetic=False)

    def _intensity(
        self, actual: float | None = None, forecast: float | None = None, **_: Any
    ) -> tuple[float | None, int]:
        """The value of a half hour, and its rank: another answer may know it better."""
        best = forecast if actual is None else actual
        value = {"actual": actual, "forecast": forecast, "best-known": best}[self.value]
        return value, int(actual is not None)


def _half_hours(data: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(zone, half hour) of the `data` of an answer for the country, for one region, or for all regions."""
    if isinstance(data, list) and len(data) == 1 and "data" in data[0]:
        (data,) = data
    if isinstance(data, dict):
        yield from ((data.get("shortname", "GB region"), half_hour) for half_hour in data["data"])
        return
    for half_hour in data:
        if "regions" not in half_hour:
            yield "GB", half_hour
        for region in half_hour.get("regions", []):
            if region["regionid"] in _REGIONS:
                yield region["shortname"], {"from": half_hour["from"], "intensity": region["intensity"]}
