"""Carbon intensity in the layout of Great Britain's Carbon Intensity API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import gunzipped, read_file
from hpctrip.base.times import moment_us, zone
from hpctrip.sim.signals.base import SIGNALS
from hpctrip.sim.signals.files import FileSignal, Series

REGIONS = range(1, 15)
"""Those of the network operators; 15 to 18 are England, Scotland, Wales and GB."""


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
    """Which of the two; best-known: the actual one, or the forecast where that is missing."""

    def read(self, path: Path, place: str) -> Sequence[Series]:
        """Zones: GB, or a region's name."""
        try:
            said = json.loads(gunzipped(read_file(path, place), place))
        except (ValueError, RecursionError):
            raise InputError(
                place, "not a JSON text", "give an answer of api.carbonintensity.org.uk"
            ) from None
        zones = _zones(said.get("data") if isinstance(said, dict) else None, place)
        return [self._series(place, name, rows) for name, rows in zones.items()]

    def _series(self, place: str, name: str, rows: Sequence[Any]) -> Series:
        found = [self._row(row, f"{place}, half hour {i + 1}") for i, row in enumerate(rows)]
        time_us, value = zip(*found, strict=True) if found else ((), ())
        return Series(place, name, np.array(time_us, dtype=np.int64), np.array(value, dtype=np.float64))

    def _row(self, row: Any, place: str) -> tuple[int, float]:
        try:
            time_us, intensity = moment_us(row["from"], zone("UTC")), row["intensity"]
            known = {name: intensity.get(name) for name in ("actual", "forecast")}
        except (KeyError, TypeError, AttributeError):
            raise InputError(place, "has no `from` with an `intensity`") from None
        except ValueError as error:
            raise InputError(place, f"from {error}") from None
        best = known["actual"] if known["actual"] is not None else known["forecast"]
        value = best if self.value == "best-known" else known[self.value]
        if value is None:
            return time_us, np.nan
        if type(value) not in (int, float) or not 0 <= value < 1e6:
            raise InputError(place, "has an intensity that is no number from 0 to 1e6")
        return time_us, float(value)


def _zones(data: Any, place: str) -> dict[str, list[Any]]:
    """{zone: half hours}: those of the country, within the answer for a region, or of all regions."""
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
    """The half hours of all regions, by region."""
    zones: dict[str, list[Any]] = {}
    for i, row in enumerate(data):
        try:
            for region in row["regions"]:
                if region["regionid"] in REGIONS:
                    half_hour = {"from": row["from"], "intensity": region["intensity"]}
                    zones.setdefault(str(region["shortname"]), []).append(half_hour)
        except (KeyError, TypeError):
            problem = "has no `from` with `regions` that have `regionid`, `shortname` and `intensity`"
            raise InputError(f"{place}, half hour {i + 1}", problem) from None
    if not zones:
        raise InputError(place, "has no region of 1 to 14", "give an answer for all regions, or for one")
    return zones
