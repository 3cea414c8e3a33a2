"""Power that follows traces of power domains. Shapes: N sites, D domains, T steps of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.rng import stream
from hpctrip.base.series import Signal
from hpctrip.base.text import unknown_name
from hpctrip.base.units import Seconds
from hpctrip.config.identity import Added
from hpctrip.config.sources import Reads
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.power.base import POWER_MODELS, PowerModel, PowerSupply
from hpctrip.sim.series import Series
from hpctrip.sim.times import Moment, TimeUnit, TimeZone
from hpctrip.sim.traces.files import Flags, read_trace_files, trace_files
from hpctrip.sim.traces.synthetic import synthetic_traces


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


def traces_named(wanted: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """The number of the trace that each of these texts [n] names, [n]. InputError for the first that names none."""
    for name in wanted.tolist():
        if name not in names:
            problem = f"names {name!r}, of which there is no power; {unknown_name(name, names)}"
            raise InputError("the column power_trace or name of the sites", problem)
    return np.array([names.index(name) for name in wanted.tolist()], dtype=np.int64)
