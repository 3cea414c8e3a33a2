"""Carbon intensity in the layout of Great Britain's Carbon Intensity API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.files import gunzipped, read_file
from hpctrip.base.times import moment_us, zone
from hpctrip.sim.signals.base import SIGNALS
from hpctrip.sim.signals.files import FileSignal, Series

MAX_BYTES = 2**26


@SIGNALS.add
class UkCarbonIntensity(FileSignal):
    """Answers of api.carbonintensity.org.uk as they come, JSON: half hours in UTC with `intensity.actual` and
    `intensity.forecast` in gCO2/kWh, of the whole country, or of one region, which has forecasts alone."""

    kind = "uk-carbon-intensity"
    value: Literal["actual", "forecast", "best-known"] = "best-known"
    """Which of the two; best-known: the actual one, or the forecast where that is missing."""

    def read(self, path: Path, place: str) -> Sequence[Series]:
        """One zone: GB, or the region's name."""
        try:
            said = json.loads(gunzipped(read_file(path, MAX_BYTES, place), MAX_BYTES, place))
        except (ValueError, RecursionError):
            raise InputError(
                place, "not a JSON text", "give an answer of api.carbonintensity.org.uk"
            ) from None
        name, rows = _rows(said.get("data") if isinstance(said, dict) else None, place)
        found = [self._row(row, f"{place}, half hour {i + 1}") for i, row in enumerate(rows)]
        time_us, value = (
            (np.array(part) for part in zip(*found, strict=True)) if found else (np.zeros(0),) * 2
        )
        return [Series(place, name, time_us.astype(np.int64), value.astype(np.float64))]

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


def _rows(data: Any, place: str) -> tuple[str, list[Any]]:
    """(zone, half hours): those of the country, or those within the answer for a region."""
    region = data[0] if isinstance(data, list) and len(data) == 1 else data
    if isinstance(region, dict) and isinstance(region.get("data"), list):
        name = region.get("shortname")
        return (name if isinstance(name, str) and name else "GB region"), region["data"]
    if not isinstance(data, list):
        raise InputError(place, "has no list `data`", "give an answer of api.carbonintensity.org.uk")
    return "GB", data
