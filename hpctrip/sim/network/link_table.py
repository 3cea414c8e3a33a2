"""The table of links between regions: round-trip times and bandwidths, which may change with time.

Shapes: R regions, L rows of the file, Z links that change, T steps of time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.frames import pd
from hpctrip.base.series import Signal
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.series import Column, Series, joined, rows_of
from hpctrip.sim.sites import measured
from hpctrip.sim.times import SHOWN_TWICE, time_column

_COLUMNS = {"rtt_s": "rtt_ms", "bandwidth_bps": "bandwidth_gbps"}
"""{quantity of a link: an example of its column}."""


class Matrix(NamedTuple):
    """Links from R regions to R regions; NaN where the table has none."""

    regions: list[str]
    """Names, sorted."""
    latency_s: np.ndarray
    """Half the round-trip time, [R, R]."""
    bandwidth_bps: np.ndarray
    """[R, R]."""

    def seconds(self, start: np.ndarray | int, end: np.ndarray | int, num_bytes: float) -> np.ndarray:
        """Seconds that `num_bytes` take from regions `start` to regions `end`."""
        return self.latency_s[start, end] + 8 * num_bytes / self.bandwidth_bps[start, end]


@dataclass(frozen=True)
class MatrixSeries:
    """Links between regions over time: a `Matrix` for each of T steps."""

    of_step: Callable[[int], Matrix]
    """The links in each step."""
    steps: Signal
    """The number of the step over the time since the beginning of the data."""
    calendar: Calendar | None
    """Dates of the data; None: they have none."""

    @property
    def is_steady(self) -> bool:
        """Whether no link ever changes."""
        return len(self.steps.value) == 1

    @property
    def _offset_s(self) -> float:
        return self.calendar.offset_s if self.calendar else 0.0

    def step(self, clock_s: float) -> int:
        """The number of the step at a simulated time."""
        return int(self.steps.at(clock_s + self._offset_s))

    def at(self, clock_s: float) -> Matrix:
        """The links at a simulated time."""
        return self.of_step(self.step(clock_s))

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which a link changes; inf: never."""
        change_s = self.steps.next_change_s(clock_s + self._offset_s) - self._offset_s
        return max(change_s, float(np.nextafter(clock_s, np.inf)))

    def on(self, calendar: Calendar) -> MatrixSeries:
        """The same links cut to a calendar within their own, from whose start simulated time counts."""
        own = self.calendar or calendar
        begin_s, end_s = ((time_us - own.first_us) / 1e6 for time_us in (calendar.first_us, calendar.end_us))
        steps = self.steps if self.is_steady else self.steps.cut(begin_s, end_s)
        steps = steps if len(steps.value) > 1 else Signal.constant(steps.value[0])
        return replace(self, steps=steps, calendar=calendar)


def read_matrix(
    path: str,
    place: str,
    symmetric: bool = False,
    timezone: str = "UTC",
    longest_gap_s: float = 6 * 3600.0,
) -> MatrixSeries:
    """The links in a CSV file, one in a row, which hold both ways if `symmetric`; with a column of times, the rows of a
    link are its values over time. InputError at `place`, with the line, where a value is out of bounds or a link is
    given twice, and as `joined`."""
    table = read_table(path, place, may_comment=True)
    texts, numbers = (table.texts("from"), table.texts("to")), measured(table)
    for quantity, column in _COLUMNS.items():
        if quantity not in numbers:
            table.require(column)
        table.refuse(_column(table, quantity), np.isnan(numbers[quantity]), "is missing")
    regions, at = np.unique(np.concatenate(texts), return_inverse=True)
    ends, num_regions = at.reshape(2, -1), len(regions)
    pair = ends[0] * num_regions + ends[1]
    rows = np.arange(len(pair))
    if is_dated := any(re.match("time(_|$)", name) for name in table.columns):
        rows = np.sort(np.unique(pair, return_index=True)[1])  # the first of each link
    start, end, row = *ends[:, rows], rows
    if symmetric:
        start, end, row = np.append(start, end), np.append(end, start), np.append(row, row)
    _, first, of_pair = np.unique(start * num_regions + end, return_index=True, return_inverse=True)
    twice = np.isin(np.arange(len(pair)), row[row[first[of_pair]] != row])
    hint = "keep one row of them" + ", or set network.symmetric = false" * symmetric
    table.refuse("from", twice, "begins a link that another row has, too", hint)
    values = {name: np.full((num_regions, num_regions), np.nan) for name in _COLUMNS}
    for name, matrix in values.items():
        matrix[start, end] = numbers[name][row]
    links = Matrix(regions.tolist(), values["rtt_s"] / 2, values["bandwidth_bps"])
    if not is_dated or len(rows) == len(pair):
        return MatrixSeries(lambda step: links, Signal.constant(0.0), None)
    changing = rows[np.bincount(pair)[pair[rows]] > 1]
    names = [f"{one} to {other}" for one, other in zip(*texts, strict=True)]
    series = _series(table, numbers, names, np.isin(pair, pair[changing]), timezone, longest_gap_s)
    ways = [ends[:, changing], ends[::-1, changing]][: 1 + symmetric]
    return _over_time(links, tuple(np.concatenate(ways, axis=1)), series)


def _over_time(links: Matrix, ends: tuple[np.ndarray, np.ndarray], series: Series) -> MatrixSeries:
    """The `links`, of which those between `ends` [Z] have the values of `series` (see `_series`), some of them both
    ways, in steps at which one changes."""
    changes = np.append(True, (np.diff(series.value) != 0).any(axis=0))
    rtt_s, bandwidth_bps = (
        np.tile(values, (2, 1))[: len(ends[0])] for values in np.split(series.value[:, changes], 2)
    )

    @lru_cache(64)
    def of_step(step: int) -> Matrix:
        now = Matrix(links.regions, links.latency_s.copy(), links.bandwidth_bps.copy())
        now.latency_s[ends], now.bandwidth_bps[ends] = rtt_s[:, step] / 2, bandwidth_bps[:, step]
        return now

    steps = Signal(series.start_s[changes], np.arange(float(changes.sum())), series.duration_s)
    steps = steps if len(steps.value) > 1 else Signal.constant(0.0)
    return MatrixSeries(of_step, steps, series.calendar("network", None))


def _series(
    table: Table,
    numbers: Mapping[str, np.ndarray],
    names: Sequence[str],
    used: np.ndarray,
    timezone: str,
    longest_gap_s: float,
) -> Series:
    """The series of the links `names` [L] in the rows that are `used` [L] bool: first the round-trip times, then the
    bandwidths, each in the order of their first rows."""
    time, parts, order = time_column(table), [], []
    for quantity in _COLUMNS:
        of_rows, column = [f"{quantity} from {name}" for name in names], _column(table, quantity)
        rows = rows_of(table, {column: Column(of_rows, high=np.inf)}, time, timezone)
        parts.append(rows.assign(value=numbers[quantity])[used])
        order += dict.fromkeys(parts[-1].series)
    return joined(pd.concat(parts), table.place, longest_gap_s, order, SHOWN_TWICE)


def _column(table: Table, quantity: str) -> str:
    """The column of a quantity, whatever its unit."""
    return next(name for name in table.columns if name.startswith(quantity.partition("_")[0]))
