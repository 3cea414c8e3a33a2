"""Power of the user's own sites, from a CSV file. Shapes: N sites."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.text import counted
from hpctrip.base.units import Seconds, Watts
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads
from hpctrip.sim.power.base import POWER_MODELS, PowerModel
from hpctrip.sim.power.traces import TraceSupply, traces_named
from hpctrip.sim.series import Series
from hpctrip.sim.stated_units import PowerUnit
from hpctrip.sim.times import Moment, TimeZone, read_times, time_column
from hpctrip.sim.traces.files import read_site_power


@POWER_MODELS.add
class CsvPower(PowerModel):
    """Power of your own sites: a CSV file with a column of times, `time` (ISO 8601) or `time_s`, and one column per
    site, or `site` and one column.

    A column's name ends in its unit, as `oslo_kw` or `oslo (MW)`, or `unit` sets it. A site follows the column named
    by its `power_trace`, or else its `name`, in the sites file; unnamed sites follow the columns in order. P is the
    available power divided by the full power of the site's hardware ([throughput], `gpus`), at most 1.
    """

    kind = "csv"
    path: Annotated[PathName, Reads()]
    """The CSV file, plain or gzipped."""
    meaning: Literal["available", "used"] = "available"
    """Whether a column is the power that training may use, or the power that others use of the site's `capacity_w`."""
    unit: PowerUnit | None = None
    """Unit of columns without one in their names, which may not differ; fractions are relative to `capacity_w`."""
    capacity_w: Watts | None = Field(None, gt=0)
    """Power of a whole site. Absent: the full power of its hardware."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """At the end of the file: repeat it, or stop with an error."""
    start: Moment | None = None
    """Time of the data at which simulated time starts, in UTC unless it has an offset (`timezone` is that of the data);
    needs times with dates. Absent: as in `power.kind = "trace"`."""
    timezone: TimeZone = "UTC"
    """Time zone of times without an offset, e.g. "Europe/Madrid"."""
    longest_gap_s: Added[Seconds] = Field(6 * 3600.0, gt=0)
    """Missing values are replaced by the previous one, in gaps up to this length; a longer gap is an error."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2 where times are numbers since 1970: they are dates, which begin with those of carbon and price."""
        with suppress(InputError):  # which `supply_at` raises
            table = read_table(self.path, may_comment=True)
            return 1 + ((time := time_column(table)) != "time" and read_times(table, time)[1])
        return 1

    def supply_at(self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int) -> SitePower:
        """Read the file. InputError where it has no column for a site."""
        traces, is_fraction = read_site_power(self.path, self.unit, self.timezone, self.longest_gap_s)
        nameless = np.full(len(full_power_w), "")
        wanted, name = sites.get("power_trace", nameless), sites.get("name", nameless)
        wanted = np.where(wanted == "", name, wanted)
        is_named = bool((wanted != "").any())
        if not is_named and len(traces.names) != len(full_power_w):
            raise InputError(
                f"power.path = {self.path!r}",
                f"has columns for {counted(len(traces.names), 'site')}, there are {len(full_power_w)} without names",
                f'set sites.num_sites = {len(traces.names)}, or name them in a file (sites.kind = "csv")',
            )
        column = traces_named(wanted, traces.names) if is_named else np.arange(len(full_power_w))
        return SitePower(self, traces, column, is_fraction[column], full_power_w)


class SitePower(TraceSupply):
    """The supply of a `CsvPower`: site i has the power of column[i], which is a fraction where `is_fraction` [N]."""

    def __init__(
        self,
        model: CsvPower,
        traces: Series,
        column: np.ndarray,
        is_fraction: np.ndarray,
        full_power_w: np.ndarray,
    ):
        calendar = traces.calendar("power", model.start)
        super().__init__(traces, traces.value, column, np.zeros_like(column), model.at_end, calendar)
        self._is_used, self._path = model.meaning == "used", model.path
        self._least, self._most = (bound(traces.value, axis=1)[column] for bound in (np.min, np.max))
        whole_w = full_power_w if model.capacity_w is None else np.full(len(column), model.capacity_w)
        self._whole, self._unit = np.where(is_fraction, 1.0, whole_w), np.where(is_fraction, "", " W")
        self._full = np.where(is_fraction, full_power_w / whole_w, full_power_w)

    def at(self, clock_s: float) -> np.ndarray:
        """P_i of every site, [N]. Past the end of the file as `TraceSupply.at`."""
        return np.clip(self._relative(super().at(clock_s)), 0.0, 1.0)

    def _relative(self, power: np.ndarray) -> np.ndarray:
        """The power that is left for training at these values of the sites' columns, [N], over that of the hardware."""
        return (self._whole - power if self._is_used else power) / self._full

    def least(self) -> np.ndarray:
        """That of all times of the file, [N]."""
        return self._relative(self._most if self._is_used else self._least)

    def warnings(self) -> list[str]:
        """Columns of the file whose unit or capacity is probably wrong, over all its times."""
        most, domain = self._most, self._domain
        high = self._relative(self._least if self._is_used else most)
        place, lines = f"power.path = {self._path!r}", []
        if self._is_used and (over := np.flatnonzero(most > self._whole)).size:
            first = over[0]
            used = f"{most[first]:.4g} of the {self._whole[first]:.4g}{self._unit[first]}"
            lines.append(
                f"{place}: others use up to {used} of {self.traces.names[domain[first]]}, and more than there is at "
                f"{len(over)} of {len(high)} sites, where P is then 0; check power.unit and power.capacity_w"
            )
        if high.max() < 0.01:
            lines.append(
                f"{place}: P is at most {max(high.max(), 0):.3g} at every site and time; check power.unit and "
                "throughput.num_gpus"
            )
        return lines

    def unused(self) -> list[str]:
        """The columns of the file that no site follows."""
        return [
            name for number, name in enumerate(self.traces.names) if number not in {*self._domain.tolist()}
        ]

    def describe(self) -> dict[str, np.ndarray]:
        """The column of each site, [N] texts."""
        return {"power_column": np.array(self.traces.names)[self._domain]}
