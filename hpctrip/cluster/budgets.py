"""Budgets: limits on the power, energy or carbon of the whole cluster, enforced under every scheduler."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.series import Signal
from hpctrip.base.units import J_PER_KWH, Seconds, Watts
from hpctrip.base.validate import instance
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.sources import Reads
from hpctrip.sim.grid.signals import SiteSignal
from hpctrip.sim.series import Column, Series, joined, rows_of
from hpctrip.sim.stated_units import PER_KWH, POWER
from hpctrip.sim.times import time_column

_LOW_W = 100.0
"""A limit that is never higher is less than any cluster draws: its unit is likely another one."""
_logger = logging.getLogger(__name__)

BUDGETS = Registry("budget", default="none")


class Limit:
    """Time-dependent limit on the cluster's power. The base class sets no limit and no carbon intensity."""

    renewed = False
    """Whether the limit changes every round, so that the scheduler has to decide every round."""
    intensity: Signal | SiteSignal = Signal.constant(0.0)
    """Carbon intensity of the cluster's power in g/kWh, counted where the input has no [carbon]."""

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        """Permitted power in watts from `clock_s` to `until_s`, after `energy_j` and `carbon_g` have been used."""
        return np.inf

    def next_change_s(self, clock_s: float) -> float:
        """Time of the next change of the limit between rounds; inf: none."""
        return np.inf

    def is_spent(self, clock_s: float) -> bool:
        """Whether the limit will never rise above its present value."""
        return True


class Budget(Component):
    """Base class of budgets: the input keys of a limit."""

    def limit(self) -> Limit:
        """Build the limit. Raises InputError if a file that it needs is invalid."""
        return Limit()

    def begun_with(self, start_s: float | None, is_dated: bool) -> Self:
        """The budget of jobs the first of which is submitted at this time, which may be a date; None: at none that a
        file may share."""
        return self

    def start(self) -> str:
        """The time of its file at which simulated time begins, as text; empty: it reads no file."""
        return ""

    def limit_under(self, carbon: SiteSignal | None) -> Limit:
        """Build the limit of a cluster whose power has the intensity `carbon`; None: the input has no [carbon]."""
        return self.limit()

    def checked_limit(self, carbon: SiteSignal | None = None) -> Limit:
        """Build and validate the limit. Raises InputError if it is something else.

        The simulator validates the watts whenever it asks for them.
        """
        place = config_key("budget", self)
        limit = instance(self.limit_under(carbon), Limit, place, "its limit")
        if limit.intensity is not carbon:
            Signal.checked(limit.intensity, 0.0, sys.float_info.max, place, "the intensity of carbon")
        return limit


@BUDGETS.add
class NoBudget(Budget):
    """No limit. A scheduler may have a limit of its own (scheduler.eta of powerflow)."""

    kind = "none"


class FileBudget(Budget):
    """Base class of budgets that read a file of times and values."""

    columns: ClassVar[Mapping[str, float]]
    """{column of the values: its unit}, of which the file has one."""
    start_s: Seconds | None = Field(None, ge=-1e10, le=1e10)
    """Time of the file, in seconds (since 1970 if it has dates), at which the first job is submitted. Absent: the time
    of submission in the jobs' own trace if both are in seconds or both have dates, else the first time of the file."""
    path: Annotated[PathName | None, Reads()] = None

    @property
    def series(self) -> Series | None:
        """The one series in the file; None: there is no file."""
        if self.path is None:
            return None
        table = read_table(self.path, f"budget.path = {self.path!r}", may_comment=True)
        column = next((name for name in self.columns if name in table.columns), next(iter(self.columns)))
        table.texts(column)  # none is empty
        rows = rows_of(table, {column: Column(column, self.columns[column], high=1e12)}, time_column(table))
        return joined(rows, table.place, np.inf)

    def begun_with(self, start_s: float | None, is_dated: bool) -> Self:
        """The budget whose file shares the clock of the jobs, unless the input says otherwise."""
        shares = start_s is not None and (series := self.series) and (series.is_dated or not is_dated)
        return self.with_defaults(start_s=start_s) if shares else self

    def start(self) -> str:
        """Its start, in words where the file's first time is meant."""
        if (series := self.series) is None:
            return ""
        return "at its first time" if self.start_s is None else series.text(self.start_s * 1e6)

    @property
    def date_us(self) -> int | None:
        """The date at which its file begins to be read, in microseconds since 1970; None: it has none."""
        if (series := self.series) is None or not series.is_dated:
            return None
        return int(series.time_us[0] if self.start_s is None else self.start_s * 1e6)

    def _signal(self, series: Series) -> Signal:
        """The values of its file, which start again at their end. InputError where it does not hold their start."""
        (signal,) = series.signals()
        first_s = series.time_us[0] / 1e6
        begin_s = 0.0 if self.start_s is None else self.start_s - first_s
        if not 0 <= begin_s < series.duration_s:
            held = f"holds {series.text(series.time_us[0])} to {series.text(series.end_us)}"
            problem = f"{held}, but the first job is submitted at {self.start_s:.12g} s"
            hint = f"set budget.start_s = {first_s:.12g}, its first time, or give a file of the clock of the jobs"
            raise InputError(f"budget.path = {self.path!r}", problem, hint)
        return signal.begun_at(begin_s)


@BUDGETS.add
class Carbon(FileBudget):
    """Limits the carbon of the cluster's energy. It accrues evenly over a period; the unused part carries over."""

    kind = "carbon"
    columns = {"g_per_kwh": 1.0, "kg_per_mwh": 1.0, "lb_per_mwh": PER_KWH["lb per MWh"]}
    grams: float = Field(gt=0, le=1e15)
    """Carbon of the whole period."""
    period_s: Seconds = Field(gt=0, le=1e9)
    """Time over which the budget accrues."""
    path: Annotated[PathName | None, Reads()] = None
    """CSV file with the columns time_s (or time) and g_per_kwh (kg_per_mwh, lb_per_mwh); each value holds until the
    next. At its end it starts again. Absent: the intensity is that of [carbon]."""

    def limit_under(self, carbon: SiteSignal | None) -> Limit:
        """Read the trace, if there is one, and build the limit."""
        if self.path is not None and carbon is not None:
            problem = "and [carbon] both give the carbon intensity"
            raise InputError(f"budget.path = {self.path!r}", problem, "leave one of them out")
        if self.path is None and carbon is None:
            hint = "set carbon.kind, e.g. electricity-maps, or budget.path"
            raise InputError(config_key("budget", self), "needs the signal [carbon]", hint)
        return _CarbonLimit(
            self.grams, self.period_s, self._signal(series) if (series := self.series) else carbon
        )


@BUDGETS.add
class Energy(Budget):
    """Limits the energy of the cluster. It accrues evenly over a period; the unused part carries over."""

    kind = "energy"
    kwh: float = Field(gt=0, le=1e12)
    """Energy of the whole period."""
    period_s: Seconds = Field(gt=0, le=1e9)
    """Time over which the budget accrues."""

    def limit(self) -> Limit:
        """A limit that changes every round."""
        return _EnergyLimit(self.kwh * J_PER_KWH, self.period_s)


@BUDGETS.add
class Power(FileBudget):
    """Limits the power of the whole cluster to a constant or to a trace, which starts again at its end."""

    kind = "power"
    columns = {f"power_{unit.lower()}": POWER[unit] for unit in ("W", "kW", "MW")}
    watts: Watts | None = Field(None, ge=0)
    """Constant limit."""
    path: Annotated[PathName | None, Reads()] = None
    """CSV file with the columns time_s (or time) and power_w (_kw, _mw); each value holds until the next time."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.watts is None) == (self.path is None):
            raise ValueError("needs either watts or path")
        if self.start_s is not None and self.path is None:
            raise ValueError("start_s needs path")
        return self

    def limit(self) -> Limit:
        """Read the trace and build the limit."""
        if (series := self.series) is None:
            return _PowerLimit(Signal.constant(self.watts or 0.0))
        power_w = self._signal(series)
        highest_w = float(power_w.value.max())
        if 0 < highest_w < _LOW_W:
            _logger.warning(
                "budget.path = %r: its highest power is %g W; is it in kW or MW?", self.path, highest_w
            )
        return _PowerLimit(power_w)


@dataclass
class _EnergyLimit(Limit):
    """Limit from a total that accrues evenly over a period, all of it from the end of the period on."""

    total: float
    period_s: float
    renewed = True

    def _left(self, clock_s: float, used: float) -> float:
        return max(self.total * min(clock_s / self.period_s, 1.0) - used, 0.0)

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        return self._left(until_s, energy_j) / (until_s - clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return clock_s >= self.period_s


@dataclass
class _CarbonLimit(_EnergyLimit):
    intensity: Signal | SiteSignal

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        intensity = self.intensity.at(clock_s)
        joules = self._left(until_s, carbon_g) * J_PER_KWH / intensity if intensity else math.inf
        return joules / (until_s - clock_s)

    def next_change_s(self, clock_s: float) -> float:
        return self.intensity.next_change_s(clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return super().is_spent(clock_s) and not (self.intensity.value == 0).any()


@dataclass
class _PowerLimit(Limit):
    power_w: Signal

    def limit_w(self, clock_s: float, until_s: float, energy_j: float, carbon_g: float) -> float:
        return self.power_w.at(clock_s)

    def next_change_s(self, clock_s: float) -> float:
        return self.power_w.next_change_s(clock_s)

    def is_spent(self, clock_s: float) -> bool:
        return len(self.power_w.value) == 1
