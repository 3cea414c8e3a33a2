"""Signals of the grid: grams of CO2, or money, for a kilowatt-hour at every site, at any time.

`SignalModel` is the contract of a component, `GridSignal` what it builds; `ConstantSignal` and `DailySignal` need no
data. Signals that are read from files are in files.py. Shapes: N sites, Z zones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.series import Signal
from hpctrip.base.text import shown
from hpctrip.base.validate import instance, integers, numbers, positive
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.quantities import BY_SIGNAL
from hpctrip.sim.sites import SitePlacement

SIGNALS = Registry("signal", default="none")
HIGHEST = 1e6
_HOUR_S = 3600.0
_USUAL = {"g": (2.0, 3000.0)} | dict.fromkeys(("EUR", "USD", "GBP", "CHF", "AUD", "CAD", "NZD"), (0.002, 1.0))
"""{unit of a value for a kilowatt-hour: (least of the highest value, highest median) of the grids of the world}."""


@dataclass(frozen=True)
class GridSignal:
    """A value for each site as a function of simulated time: that of the site's zone."""

    names: Sequence[str]
    """[Z] names of the zones."""
    series: Sequence[Signal]
    """[Z] values over the time since the beginning of the data."""
    zone: np.ndarray
    """[N] which zone each site is in."""
    synthetic: bool
    offset_s: float = 0.0
    """Time of the data at which simulated time begins."""
    until_s: float = np.inf
    """Simulated time at which the data end; inf: they start again."""
    table: str = ""
    """Input table that the signal is for, "carbon" or "price"; named in errors."""
    calendar: Calendar | None = None
    """Dates of the series; None: they have none."""

    def on(self, calendar: Calendar) -> GridSignal:
        """The same signal cut to a calendar within its own, from whose start simulated time counts."""
        own = self.calendar or calendar
        begin_s, end_s = ((time_us - own.first_us) / 1e6 for time_us in (calendar.first_us, calendar.end_us))
        return replace(
            self,
            series=[series.cut(begin_s, end_s) for series in self.series],
            offset_s=calendar.offset_s,
            until_s=np.inf if self.until_s == np.inf else calendar.duration_s - calendar.offset_s,
            calendar=calendar,
        )

    def with_own(self, values: np.ndarray) -> GridSignal:
        """The signal in which sites have these values of their own, which never change, [N]; NaN: as before."""
        own = ~np.isnan(values)
        numbers, zone = np.unique(values[own], return_inverse=True)
        names, series = [f"{number:g} per kWh" for number in numbers], [*map(Signal.constant, numbers)]
        if own.all():
            return GridSignal(names, series, zone, synthetic=False)
        zones = self.zone + len(numbers)
        zones[own] = zone
        return replace(self, names=[*names, *self.names], series=[*series, *self.series], zone=zones)

    @property
    def is_known(self) -> bool:
        """Whether there are data."""
        return not np.isnan(self.series[0].value[0])

    def at(self, clock_s: float, sites: np.ndarray | slice = slice(None)) -> np.ndarray:
        """The value per kilowatt-hour at every site, [N], or at these. InputError past the end of data that do not
        start again."""
        if clock_s >= self.until_s:
            raise InputError(
                f"{self.table}.at_end",
                f"simulated time {clock_s:g} s is past the end of the data, {self.until_s:g} s after the start",
                'set at_end = "wrap" to start it again, or give longer data',
            )
        values = np.array([series.at(clock_s + self.offset_s) for series in self.series])
        return values[self.zone[sites]]

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the value of a zone changes; inf: never."""
        changes = (series.next_change_s(clock_s + self.offset_s) for series in self.series)
        return max(min(changes) - self.offset_s, float(np.nextafter(clock_s, np.inf)))


@dataclass(frozen=True)
class SiteSignal:
    """A grid signal at its first site."""

    grid: GridSignal

    @property
    def value(self) -> np.ndarray:
        """All values of the site's zone, [K]."""
        return self.grid.series[self.grid.zone[0]].value

    def at(self, clock_s: float) -> float:
        """The value per kilowatt-hour. InputError past the end of data that do not start again."""
        return float(self.grid.at(clock_s)[0])

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the value may change; inf: never."""
        return self.grid.next_change_s(clock_s)


class SignalModel(Component):
    """Base of all signals."""

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """The signal at `num_sites` sites; `table` is "carbon" or "price". Raises InputError where its files are
        unusable."""
        raise NotImplementedError

    def checked_signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """The signal. InputError where it is not one or more series of values within bounds, each under a name, with
        a zone for every site."""
        place = config_key(table, self)
        signal = instance(self.signal(table, sites, num_sites, seed), GridSignal, place, "its signal")
        if not len(signal.series) or len(signal.names) != len(signal.series):
            problem = f"gave {len(signal.series)} series under {len(signal.names)} names"
            raise InputError(place, problem, "it must be one or more, each under a name")
        series = []
        for name, values in zip(signal.names, signal.series, strict=True):
            what = f"the {table} of zone {shown(instance(name, str, place, 'the name of a zone'))}"
            series.append(Signal.checked(values, BY_SIGNAL[table].lowest_per_kwh, HIGHEST, place, what))
        zone = integers(signal.zone, (num_sites,), 0, len(series) - 1, place, "the zones of the sites")
        instance(signal.synthetic, bool, place, "synthetic")
        if signal.calendar is not None:
            instance(signal.calendar, Calendar, place, "its calendar")
        numbers(signal.offset_s, (), 0.0, sys.float_info.max, place, "offset_s")
        positive(signal.until_s, place, "until_s")
        return replace(signal, series=series, zone=zone)


@SIGNALS.add
class NoSignal(SignalModel):
    """No data: nothing is recorded (NaN)."""

    kind = "none"

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """NaN everywhere."""
        return GridSignal([""], [Signal.constant(np.nan)], np.zeros(num_sites, dtype=np.int64), False)

    def checked_signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """The signal, which alone may be NaN."""
        return self.signal(table, sites, num_sites, seed)


@SIGNALS.add
class ConstantSignal(SignalModel):
    """The same value at every site and every time."""

    kind = "constant"
    per_kwh: float = Field(ge=-HIGHEST, le=HIGHEST)
    """Grams of CO2 in [carbon], or money in [price], per kilowatt-hour."""

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """One zone."""
        zone = np.zeros(num_sites, dtype=np.int64)
        return GridSignal(["everywhere"], [Signal.constant(self.per_kwh)], zone, True)


@SIGNALS.add
class DailySignal(SignalModel):
    """Synthetic: mean + swing cos(2 pi (hour - peak_hour) / 24), held over each hour of a site's local time."""

    kind = "daily"
    mean: float = Field(ge=-HIGHEST, le=HIGHEST)
    """Mean over the day, per kilowatt-hour: grams of CO2 in [carbon], money in [price]."""
    swing: float = Field(0.0, ge=0, le=HIGHEST)
    """Amplitude around the mean."""
    peak_hour: float = Field(19.0, ge=0, lt=24)
    """Local hour of the maximum."""
    spread: bool = True
    """Whether each site draws one of 24 time zones, from the stream (seed, "zone"). false: it is midnight everywhere at
    the simulated time 0."""

    @model_validator(mode="after")
    def _finite(self) -> Self:
        if abs(self.mean) + self.swing > HIGHEST:
            raise ValueError(f"mean and swing together are beyond {HIGHEST:g}")
        return self

    def signal(self, table: str, sites: SitePlacement, num_sites: int, seed: int) -> GridSignal:
        """24 zones, or one."""
        hours = np.arange(24)
        profile = self.mean + self.swing * np.cos(2 * np.pi * (hours + 0.5 - self.peak_hour) / 24)
        ahead = range(24) if self.spread else range(1)
        series = [Signal(hours * _HOUR_S, np.roll(profile, -hour), 24 * _HOUR_S) for hour in ahead]
        return GridSignal(
            [f"UTC+{hour}" for hour in ahead], series, zones_by_seed(num_sites, len(series), seed), True
        )


def unusual(table: str, signal: GridSignal, currency: str = "EUR") -> Iterator[str]:
    """A line where a signal has values that no grid has; the unit is likely another one."""
    values = np.abs(np.concatenate([series.value for series in signal.series]))
    median, highest = float(np.median(values)), float(values.max())
    what = "g" if table == "carbon" else currency
    low, high = _USUAL.get(what, (0.0, 100.0))
    if 0 < highest < low or median > high:
        value = f"half of them are above {median:g}" if median > high else f"the highest is {highest:g}"
        yield f"{table}: {value} {what} for a kilowatt-hour; if the values are in another unit, set {table}.unit"


def zones_by_seed(num_sites: int, num_zones: int, seed: int) -> np.ndarray:
    """[N] zones, drawn from the stream (seed, "zone"): the same for all signals that have as many zones."""
    drawn = stream(seed, "zone").uniform(size=num_sites)
    return np.floor(drawn * num_zones).astype(np.int64)
