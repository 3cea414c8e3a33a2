"""Carbon intensity in the layout of Electricity Maps' yearly files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.times import moments_us
from hpctrip.sim.signals.base import SIGNALS
from hpctrip.sim.signals.csv import by_zone
from hpctrip.sim.signals.files import FileSignal, Series

_TIME, _ZONE = "Datetime (UTC)", ("Zone Id", "Zone id")


@SIGNALS.add
class ElectricityMaps(FileSignal):
    """Files as Electricity Maps publishes them: `Datetime (UTC)`, `Zone Id`, and the carbon intensity in gCO2eq/kWh,
    direct and over the life cycle. Their data are under the ODbL: attribute them, and keep them apart."""

    kind = "electricity-maps"
    intensity: Literal["life-cycle", "direct"] = "life-cycle"
    """Whether what it took to build plants and to win fuels counts, too."""

    def read(self, path: Path, place: str) -> Sequence[Series]:
        """By the columns that the publisher names, whose wording has changed over the years."""
        table = read_table(path, place)
        column = _column(table, "direct" if self.intensity == "direct" else r"LCA|life cycle")
        zone = next((name for name in _ZONE if name in table.columns), _ZONE[0])
        table.require(_TIME, zone)
        zones = table.texts(zone)
        return by_zone(place, zones, moments_us(table, _TIME, "UTC"), table.numbers(column, may_lack=True))


def _column(table: Table, which: str) -> str:
    """The column of this carbon intensity. InputError where there is none, or it is in another unit."""
    named = [
        name for name in table.columns if re.search(rf"carbon intensity.*({which})", name, re.IGNORECASE)
    ]
    if len(named) != 1:
        problem = f"has {len(named) or 'no'} columns of a carbon intensity ({which.replace('|', ' or ')})"
        raise InputError(table.place, problem, "give a file as Electricity Maps publishes it")
    if not re.search(r"g\s*CO.{0,3}eq\s*/\s*kWh", named[0]):
        raise InputError(
            table.place, f"{named[0]!r} is not in gCO2eq/kWh", 'use kind = "csv" for other units'
        )
    return named[0]
