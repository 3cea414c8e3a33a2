"""The contract of a signal: a component that says what a kilowatt-hour carries or costs at every site, at any time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.component import Component, Registry
from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.signal import Signal
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


@SIGNALS.add
class NoSignal(SignalModel):
    """Nothing is known, and nothing recorded (NaN)."""

    kind = "none"

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """NaN everywhere."""
        return GridSignal.unknown(num_sites)


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
