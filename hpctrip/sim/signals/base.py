"""The contract of a signal: a component that says what a kilowatt-hour carries or costs at every site, at any time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, instance, integers, numbers, positive
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.series import Signal
from hpctrip.base.text import shown
from hpctrip.sim.sites import SiteLaw

SIGNALS = Registry("signal", default="none")
LOWEST = {"carbon": 0.0, "price": -1e6}
"""{table: the least that a kilowatt-hour may carry or cost}: prices of electricity fall below 0."""
HIGHEST = 1e6


@dataclass(frozen=True)
class GridSignal:
    """A number of every site as a function of simulated time."""

    names: Sequence[str]
    """[Z] of the zones."""
    series: Sequence[Signal]
    """[Z] by the time since the data's beginning."""
    zone: np.ndarray
    """[N] which zone each site is in."""
    synthetic: bool
    offset_s: float = 0.0
    """Time of the data at which simulated time begins."""
    until_s: float = np.inf
    """Simulated time beyond which nothing is known."""
    table: str = ""

    @classmethod
    def unknown(cls, num_sites: int) -> GridSignal:
        """One of which nothing is known: NaN at all times."""
        return cls([""], [Signal.constant(np.nan)], np.zeros(num_sites, dtype=np.int64), False)

    def checked(self, table: str, num_sites: int, place: str) -> Self:
        """The same, or InputError at `place` (the component's) where it is no signal of so many sites."""
        if not len(self.series) or len(self.names) != len(self.series):
            problem = f"gave {len(self.series)} series under {len(self.names)} names"
            raise InputError(place, problem, "it must be one or more, each under a name")
        known = []
        for name, series in zip(self.names, self.series, strict=True):
            what = f"the {table} of zone {shown(instance(name, str, place, 'the name of a zone'))}"
            known.append(Signal.checked(series, LOWEST[table], HIGHEST, place, what))
        zone = integers(self.zone, (num_sites,), 0, len(known) - 1, place, "the zones of the sites")
        instance(self.synthetic, bool, place, "synthetic")
        numbers(self.offset_s, (), 0.0, sys.float_info.max, place, "offset_s")
        positive(self.until_s, place, "until_s")
        return replace(self, series=known, zone=zone)

    @property
    def is_known(self) -> bool:
        """Whether there is a number at all."""
        return not np.isnan(self.series[0].value[0])

    def at(self, clock_s: float) -> np.ndarray:
        """For a kilowatt-hour at every site, [N]. InputError past the end of data that are not to begin again."""
        if clock_s >= self.until_s:
            raise InputError(
                f"{self.table}.at_end",
                f"simulated time {clock_s:g} s is past the end of the data, {self.until_s:g} s after the start",
                'set at_end = "wrap" to start it again, or give longer data',
            )
        values = np.array([series.at(clock_s + self.offset_s) for series in self.series])
        return values[self.zone]

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which one of its zones changes; inf: never."""
        changes = (series.next_change_s(clock_s + self.offset_s) for series in self.series)
        following = min(changes) - self.offset_s
        return following if following > clock_s else float(np.nextafter(clock_s, np.inf))


class SignalModel(Component):
    """Base of all signals."""

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """That of `num_sites` sites; `table` is "carbon" or "price". Raises InputError where its files are not what
        they should be."""
        raise NotImplementedError

    def checked_signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """That of `num_sites` sites, or InputError where it is none: numbers of every zone in range, every site in
        one."""
        found, place = self.signal(table, sites, num_sites, seed), config_key(table, self)
        return instance(found, GridSignal, place, "its signal").checked(table, num_sites, place)


@SIGNALS.add
class NoSignal(SignalModel):
    """Nothing is known, and nothing recorded (NaN)."""

    kind = "none"

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """NaN everywhere."""
        return GridSignal.unknown(num_sites)

    def checked_signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """The only signal of which nothing may be known."""
        return self.signal(table, sites, num_sites, seed)


def check_range(table: str, values: np.ndarray) -> None:
    """InputError where a number for a kilowatt-hour is out of range."""
    low, high = LOWEST[table], HIGHEST
    if values.min() < low or values.max() > high:
        wrong = values.min() if values.min() < low else values.max()
        raise InputError(table, f"{wrong:g} for a kilowatt-hour", f"it must be from {low:g} to {high:g}")


def zones_by_seed(num_sites: int, num_zones: int, seed: int) -> np.ndarray:
    """[N] zones, drawn from the stream (seed, "zone"): the same for all signals that have as many zones."""
    drawn = stream(seed, "zone").uniform(size=num_sites)
    return np.floor(drawn * num_zones).astype(np.int64)
