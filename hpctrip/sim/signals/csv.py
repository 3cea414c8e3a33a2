"""A signal from CSV files of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator

from hpctrip.base.csv import read_table
from hpctrip.base.times import moments_us, time_zone
from hpctrip.sim.signals.base import SIGNALS
from hpctrip.sim.signals.files import FileSignal, Series

_PER_KWH = {"per kWh": 1.0, "per MWh": 1e-3}


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

    def read(self, path: Path, place: str) -> Sequence[Series]:
        """By the columns that the input names."""
        table = read_table(path, place, may_comment=True)
        table.require(self.time_column, self.value_column, *filter(None, [self.zone_column]))
        stem = path.name.partition(".")[0]
        zones = table.texts(self.zone_column) if self.zone_column else [stem] * len(table.lines)
        time_us = moments_us(table, self.time_column, self.timezone, zones)
        value = table.numbers(self.value_column, may_lack=True) * _PER_KWH[self.unit]
        return by_zone(place, zones, time_us, value)


def by_zone(place: str, zones: Sequence[str], time_us: np.ndarray, value: np.ndarray) -> list[Series]:
    """The rows of a table, [R] each, by zone."""
    names = np.array(zones)
    return [Series(place, str(n), time_us[names == n], value[names == n]) for n in np.unique(names)]
