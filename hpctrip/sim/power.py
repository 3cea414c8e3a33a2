"""Power models: the power fraction of every site at any simulated time (paper Sec. 5.1, Eq. 6's power_w).

A `PowerModel` is a component that builds a `PowerSupply`, which answers at any time. Shapes: N sites, D power domains,
T steps of a trace.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.series import Signal, next_step_s
from hpctrip.base.text import counted, unknown_name
from hpctrip.base.units import Seconds, Watts
from hpctrip.base.validate import columns, instance, positive
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.series import Series
from hpctrip.sim.stated_units import PowerUnit
from hpctrip.sim.times import Moment, TimeUnit, TimeZone, read_times, time_column
from hpctrip.sim.traces.files import Flags, read_site_power, read_trace_files, trace_files
from hpctrip.sim.traces.synthetic import synthetic_traces

POWER_MODELS = Registry("power model", default="uniform")
_logger = logging.getLogger(__name__)


class PowerSupply:
    """Base of all supplies: power of N sites as a function of simulated time, with the contract of base/series.py."""

    step_s: float = np.inf
    """Power is constant within each step, which begins at a multiple of `step_s`; inf: it never changes."""
    ends_s: float = np.inf
    """Simulated time from which on it has no data; inf: never."""
    synthetic: bool = True
    """Whether the numbers were made up; results say so wherever they show."""
    calendar: Calendar | None = None
    """Dates of the supply, which then has `on`; None: it has none."""

    def on(self, calendar: Calendar) -> PowerSupply:
        """The same supply cut to a calendar within its own, from whose start simulated time counts."""
        raise NotImplementedError

    def at(self, clock_s: float) -> np.ndarray:
        """Power fraction P_i(t) in [0, 1] of every site, [N] float64."""
        raise NotImplementedError

    def next_change_s(self, clock_s: float) -> float:
        """The end of the present step."""
        return next_step_s(clock_s, self.step_s)

    def describe(self) -> dict[str, np.ndarray]:
        """Per-site facts worth recording, e.g. which trace a site follows: {name: numbers or texts [N]}.
        May be empty."""
        return {}

    def warnings(self) -> list[str]:
        """One line for each value that is probably a mistake."""
        return []

    def unused(self) -> list[str]:
        """The columns of the user's file that no site follows."""
        return []


class PowerModel(Component):
    """Base of all power models."""

    def supply(self, num_sites: int, seed: int) -> PowerSupply:
        """The supply of `num_sites` sites. Drawn from named streams: the same seed gives the same power."""
        raise NotImplementedError

    def supply_at(self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int) -> PowerSupply:
        """The supply of sites with these columns (`SitePlacement.columns`), for which a power fraction of 1 means
        `full_power_w` [N]. By default neither matters."""
        if "power_trace" in sites:
            _logger.warning(
                "%s follows no trace: the sites' column power_trace is not used", config_key("power", self)
            )
        return self.supply(len(full_power_w), seed)

    def checked_supply(
        self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int
    ) -> PowerSupply:
        """`supply_at`. InputError where it is none; its fractions are checked where they are asked for (`World`)."""
        place = config_key("power", self)
        supply = instance(self.supply_at(sites, full_power_w, seed), PowerSupply, place, "its supply")
        positive(supply.step_s, place, "step_s")
        instance(supply.synthetic, bool, place, "synthetic")
        if supply.calendar is not None:
            instance(supply.calendar, Calendar, place, "its calendar")
        columns(supply.describe(), len(full_power_w), place, "its description")
        return supply


class SteadySupply(PowerSupply):
    """A supply that never changes: one fraction per site."""

    def __init__(self, fractions: np.ndarray):
        self._fractions = np.asarray(fractions, dtype=np.float64)

    def at(self, clock_s: float) -> np.ndarray:
        """The same [N] fractions at every time."""
        return self._fractions


@POWER_MODELS.add
class Constant(PowerModel):
    """The same power fraction at every site and every time (Fig. 6/7: equal power)."""

    kind = "constant"
    fraction: float = Field(1.0, gt=0, le=1)
    """Power fraction P, in (0, 1]."""

    def supply(self, num_sites: int, seed: int) -> SteadySupply:
        """N equal fractions."""
        return SteadySupply(np.full(num_sites, self.fraction))


@POWER_MODELS.add
class Trace(PowerModel):
    """P_i(t) = 1 - utilisation of a power domain, constant over each step of its trace (paper Sec. 5.1, Fig. 12).

    Every site follows one domain from a circular offset of whole steps, both drawn at random, so a few dozen domains
    suffice for any number of sites.
    """

    kind = "trace"
    path: Annotated[PathName, Reads(unless=("synthetic",), find=trace_files)] = "synthetic"
    """Trace files: a folder, a file or a glob. "synthetic": generated, no file."""
    column: Literal["production", "measured"] = "production"
    """Utilisation by production workloads, or by all measured power (for files without a production column)."""
    flags: Flags = "true-is-bad"
    """Meaning of `true` in the files' flag columns. Google's PDF and notebook disagree; we follow the notebook."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """At the end of the trace: repeat it, or stop with an error (with offsets, as soon as one site's trace ends)."""
    offsets: bool = True
    """Whether each site starts at its own random time of the trace; false: all start together, and a dated trace at the
    same moment as the other dated series (`start`)."""
    start: Moment | None = None
    """Time of a dated trace at which simulated time starts, in UTC unless it has an offset; needs offsets = false.
    Absent: the `start` of another dated series (carbon, price), or else the first time common to all."""
    time_unit: TimeUnit = "us"
    """Unit of a column `time`: microseconds, as in Google's files, milliseconds, or seconds."""
    timezone: TimeZone = "UTC"
    """Time zone of times without an offset in a column `datetime`, e.g. "Europe/Madrid"."""
    longest_gap_s: Added[Seconds] = Field(6 * 3600.0, gt=0)
    """Missing values are replaced by the previous one, in gaps up to this length; a longer gap is an error."""
    synthetic_seed: int = 2019
    """Seed of the synthetic month, separate from the run's seed, so that all runs see the same month."""

    @model_validator(mode="after")
    def _start_of_all(self) -> Self:
        if self.start is not None and self.offsets:
            raise ValueError(
                "start needs offsets = false: with offsets each site starts at a time of its own"
            )
        return self

    def supply(self, num_sites: int, seed: int) -> TraceSupply:
        """Read the traces and draw each site's domain and offset from (seed, "trace-domain" / "trace-offset")."""
        return self.supply_at({}, np.ones(num_sites), seed)

    def supply_at(self, sites: Mapping[str, np.ndarray], full_power_w: np.ndarray, seed: int) -> TraceSupply:
        """The same, but a site whose column `power_trace` names a domain follows that one."""
        num_sites = len(full_power_w)
        if self.path == "synthetic":
            traces = synthetic_traces(self.synthetic_seed, self.column)
        else:
            traces = read_trace_files(
                self.path, self.column, self.flags, self.time_unit, self.timezone, self.longest_gap_s
            )
        num_domains, num_steps = traces.value.shape
        domain = stream(seed, "trace-domain").integers(num_domains, size=num_sites)
        if "power_trace" in sites:
            named = np.flatnonzero(sites["power_trace"] != "")
            domain[named] = traces_named(sites["power_trace"][named], traces.names)
        offset = stream(seed, "trace-offset").integers(num_steps, size=num_sites)
        offset = offset if self.offsets else np.zeros_like(offset)
        calendar = None if self.offsets else traces.calendar("power", self.start)
        return TraceSupply(traces, 1.0 - traces.value, domain, offset, self.at_end, calendar)


class TraceSupply(PowerSupply):
    """A supply that follows `traces`: site i has the `values` [D, T] of domain[i], `offset[i]` steps later."""

    def __init__(
        self,
        traces: Series,
        values: np.ndarray,
        domain: np.ndarray,
        offset: np.ndarray,
        at_end: str,
        calendar: Calendar | None = None,
    ):
        self.traces, self.calendar = traces, calendar
        self.step_s = traces.step_s
        self.synthetic = traces.synthetic
        self._domain, self._offset, self._at_end = domain, offset, at_end
        num_steps = values.shape[1]
        # Each trace twice in a row, [D * 2T]: a circular shift is one add and one gather, without a modulo per site.
        self._spare = np.tile(values, 2).ravel()
        self._first = domain * (2 * num_steps) + offset
        self._steps = Signal(traces.start_s, np.arange(num_steps), traces.duration_s)
        self._begin_s, self._until_s = 0.0, traces.duration_s - offset.max(initial=0) * self.step_s

    def on(self, calendar: Calendar) -> TraceSupply:
        """The same traces, whose common steps are cut to the calendar."""
        supply = copy(self)
        begin_s, end_s = (
            (time_us - self.traces.time_us[0]) / 1e6 for time_us in (calendar.first_us, calendar.end_us)
        )
        supply.calendar, supply._steps = calendar, self._steps.cut(begin_s, end_s)
        supply._begin_s, supply._until_s = calendar.offset_s, calendar.duration_s - calendar.offset_s
        return supply

    @property
    def ends_s(self) -> float:  # type: ignore[override]
        """The end of the first trace of a site, unless they start again."""
        return self._until_s if self._at_end == "raise" else np.inf

    def at(self, clock_s: float) -> np.ndarray:
        """P_i of every site, [N]. Past the end of a site's trace: wraps, or raises InputError (`at_end`)."""
        if clock_s >= self.ends_s:
            together = "set offsets = false, " if self._offset.any() else ""
            raise InputError(
                "power.at_end",
                f"simulated time {clock_s:g} s is past the end of a site's power trace, {self.ends_s:g} s",
                f'set at_end = "wrap" to start it again, {together}or give longer traces',
            )
        return self._spare.take(self._first + int(self._steps.at(clock_s + self._begin_s)))

    def next_change_s(self, clock_s: float) -> float:
        """The end of the present step."""
        change_s = self._steps.next_change_s(clock_s + self._begin_s) - self._begin_s
        return max(change_s, float(np.nextafter(clock_s, np.inf)))

    def describe(self) -> dict[str, np.ndarray]:
        """The name of each site's domain, e.g. "cella_pdu6", [N] texts, and its offset in steps, [N] integers."""
        return {"trace_domain": np.array(self.traces.names)[self._domain], "trace_offset": self._offset}


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
    """Time of the data at which simulated time starts, as in `power.kind = "trace"`; needs times with dates."""
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
        whole_w = full_power_w if model.capacity_w is None else np.full(len(column), model.capacity_w)
        self._whole, self._unit = np.where(is_fraction, 1.0, whole_w), np.where(is_fraction, "", " W")
        self._full = np.where(is_fraction, full_power_w / whole_w, full_power_w)

    def at(self, clock_s: float) -> np.ndarray:
        """P_i of every site, [N]. Past the end of the file as `TraceSupply.at`."""
        return np.clip(self._relative(super().at(clock_s)), 0.0, 1.0)

    def _relative(self, power: np.ndarray) -> np.ndarray:
        """The power that is left for training at these values of the sites' columns, [N], over that of the hardware."""
        return (self._whole - power if self._is_used else power) / self._full

    def warnings(self) -> list[str]:
        """Columns of the file whose unit or capacity is probably wrong, over all its times."""
        power, domain = self.traces.value, self._domain
        least, most = power.min(axis=1)[domain], power.max(axis=1)[domain]
        low, high = np.sort([self._relative(least), self._relative(most)], axis=0)
        place, lines = f"power.path = {self._path!r}", []
        if self._is_used and (over := np.flatnonzero(most > self._whole)).size:
            first = over[0]
            used = f"{most[first]:.4g} of the {self._whole[first]:.4g}{self._unit[first]}"
            lines.append(
                f"{place}: others use up to {used} of {self.traces.names[domain[first]]}, and more than there is at "
                f"{len(over)} of {len(low)} sites, where P is then 0; check power.unit and power.capacity_w"
            )
        if low.min() >= 1:
            lines.append(
                f"{place}: P is 1 at every site and time, as the least power is {low.min():.3g} times that of a site's "
                "hardware; check power.unit and throughput.num_gpus"
            )
        elif high.max() < 0.01:
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


def traces_named(wanted: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The number of the trace that each of these texts [n] names, [n]. InputError for the first that names none."""
    for name in wanted.tolist():
        if name not in names:
            problem = f"names {name!r}, of which there is no power; {unknown_name(name, names)}"
            raise InputError("the column power_trace or name of the sites", problem)
    return np.array([names.index(name) for name in wanted.tolist()], dtype=np.int64)


@POWER_MODELS.add
class Uniform(PowerModel):
    """P_i ~ U(low, high), drawn once per site (paper Sec. 5.1: U(0.1, 1.0))."""

    kind = "uniform"
    low: float = Field(0.1, gt=0, le=1)
    """Smallest power fraction."""
    high: float = Field(1.0, gt=0, le=1)
    """Largest power fraction."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")
        return self

    def supply(self, num_sites: int, seed: int) -> SteadySupply:
        """N fractions from the stream (seed, "power")."""
        return SteadySupply(stream(seed, "power").uniform(self.low, self.high, num_sites))
