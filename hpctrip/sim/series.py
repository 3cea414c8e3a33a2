"""Series in files: the power of sites and of power domains, carbon, prices, the limits of a cluster.

One reader and one set of rules for all of them. A format gives the rows of its files, in a unit that it states
(`rows_of` a table); `joined` makes one `Series` of them:

* Rows may be in any order, and equal ones count once. A value holds until the next one, the last one for the median
  step of its series.
* A missing value takes the one before it, at the beginning the one after it, in gaps up to `longest_gap_s`.
* All series begin and end where the shortest does.

Shapes: R rows, Z series, T times.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hpctrip.base.csv import Table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.series import Signal
from hpctrip.sim.calendar import Calendar
from hpctrip.sim.times import TimeUnit, moment_us, read_times, utc

_logger = logging.getLogger(__name__)
EACH = "*"
"""Instead of the name of a column of values: they are found by the `layout` of the table."""
KEYS = ("site", "zone")
"""Columns of a long table that tell which series a row is of."""


@dataclass(frozen=True)
class Series:
    """Z series over the same T times. Each value holds until the next time."""

    names: list[str]
    """[Z]."""
    time_us: np.ndarray
    """[T] int64, rising: microseconds since 1970 if the series are dated, else in the files' own clock."""
    end_us: int
    """End of the last values."""
    step_us: int
    """Median step, of the series that has the shortest."""
    value: np.ndarray
    """[Z, T] float64."""
    is_dated: bool
    synthetic: bool
    """Whether any of it was made up."""
    cells: Sequence[str] = ()
    """[Z], e.g. "a", if the series are power domains in cells."""

    @property
    def start_s(self) -> np.ndarray:
        """The times from the first on, [T] s."""
        return (self.time_us - self.time_us[0]) / 1e6

    @property
    def step_s(self) -> float:
        """`step_us` in seconds."""
        return self.step_us / 1e6

    @property
    def duration_s(self) -> float:
        """Length of the series, in seconds."""
        return float(self.end_us - self.time_us[0]) / 1e6

    def text(self, time_us: float) -> str:
        """A time of the series for messages."""
        return _text(time_us, self.is_dated)

    def signals(self) -> list[Signal]:
        """[Z] the series, which start again at their end."""
        return [Signal(self.start_s, values, self.duration_s) for values in self.value]

    def calendar(self, table: str, start: str | None) -> Calendar | None:
        """The dates of an input table's series, with the moment `start` at which simulated time begins; None where they
        have none."""
        if self.is_dated:
            return Calendar(int(self.time_us[0]), self.end_us, None if start is None else moment_us(start))
        if start is not None:
            problem = "needs data with dates: its times do not count from 1970"
            raise InputError(f"{table}.start = {start!r}", problem, "leave it out")
        return None

    def on_grid(self) -> Series:
        """The values at the multiples of the step."""
        time_us = np.arange(self.time_us[0], self.end_us, self.step_us)
        at = np.searchsorted(self.time_us, time_us, side="right") - 1
        return replace(self, time_us=time_us, value=np.ascontiguousarray(self.value[:, at]))


class Column(NamedTuple):
    """The series, the unit and the bounds of a column of values."""

    series: str | Sequence[str]
    """The series that its rows are of, or that each row [R] is of."""
    factor: float = 1.0
    """Its unit, in that of the series."""
    low: float = 0.0
    high: float = 1e15
    """Bounds, in the unit of the series."""


def layout(table: Table, time: str, keys: Sequence[str] = KEYS) -> dict[str, str | Sequence[str]]:
    """{column of values: the series that its rows are of, or that each row [R] is of}, by the columns beside `time`.

    A long table has one of `keys` and one column of values; a wide one has a column of values for each series.
    InputError where it is neither.
    """
    keys = [name for name in keys if name in table.columns]
    values = [name for name in table.columns if name not in (time, *keys)]
    if not values or len(keys) > 1 or (keys and len(values) > 1):
        problem = f"has the columns {', '.join(table.columns)}, and so is neither wide nor long"
        hint = f"give {time} and a column of values for each site or zone, or {time}, site or zone, and one of values"
        raise InputError(table.place, problem, hint)
    return {values[0]: table.texts(keys[0])} if keys else {name: name for name in values}


def rows_of(
    table: Table,
    columns: Mapping[str, Column],
    time: str = "time",
    timezone: str = "UTC",
    time_unit: TimeUnit | None = None,
    missing: np.ndarray | bool = False,
) -> pd.DataFrame:
    """The rows of a file, [R] of each column. A value is NaN where its field is empty or `missing`. InputError as for
    `read_times`, and for the first line with a value out of bounds."""
    keys = [name for column in columns.values() if not isinstance(name := column.series, str)]
    time_us, is_dated = read_times(table, time, timezone, keys[0] if keys else None, time_unit)
    of_file = {"place": table.place, "is_dated": is_dated, "synthetic": "synthetic" in table.comment.lower()}
    parts = []
    for name, (series, factor, low, high) in columns.items():
        value = np.where(missing, np.nan, table.numbers(name, may_lack=True) * factor)
        wrong, bounds = (value < low) | (value > high), f"{low / factor:g} to {high / factor:g}"
        hint = "give a fraction, not a percentage" if high == 1 else ""
        table.refuse(name, wrong, f"is outside {bounds}", hint)
        row = {"series": series, "time_us": time_us, "value": value, "line": table.lines}
        parts.append(pd.DataFrame(row).assign(**of_file))
    return pd.concat(parts)


def joined(
    rows: pd.DataFrame, place: str, longest_gap_s: float, names: Sequence[str] | None = None, hint: str = ""
) -> Series:
    """The series of the rows of all files, in the order of `names` (default: sorted), over the time that all cover.

    A row of higher `rank`, where there is this column, replaces others of its series and time. `place` stands for all
    files in messages; `hint` ends the way out where two rows contradict each other. InputError where they do, where a
    series has no value or fewer than two rows, where a gap is too long, and where the series have no time in common.
    """
    if rows.empty:
        raise InputError(place, "holds no values", "give two rows or more")
    if "rank" in rows:
        rows = rows[rows["rank"] == rows.groupby(["series", "time_us"])["rank"].transform("max")]
    if rows.is_dated.nunique() > 1:
        raise InputError(place, "has dates in some files, other times in others", "give files of one clock")
    found = {str(name): _known(of, longest_gap_s, hint) for name, of in rows.groupby("series")}
    names = list(found if names is None else names)
    firsts_us, ends_us, steps_us, known_us, known = zip(*(found[name] for name in names), strict=True)
    first_us, end_us = max(firsts_us), min(ends_us)
    if end_us <= first_us:
        raise InputError(place, "its series have no time in common", "give files of one period")
    time_us = np.unique(np.concatenate([[first_us], *known_us]))
    time_us = time_us[(time_us >= first_us) & (time_us < end_us)]
    num_steps = sum(round((end_us - first_us) / step_us) for step_us in steps_us)
    num_known = sum(((each_us >= first_us) & (each_us < end_us)).sum() for each_us in known_us)
    if num_known < num_steps and longest_gap_s < np.inf:
        lack = num_steps - num_known, num_steps
        _logger.warning("%s: %d of %d values are missing, and the one before holds", place, *lack)
    last = [np.searchsorted(each_us, time_us, side="right") - 1 for each_us in known_us]
    value = np.stack([values[at.clip(0)] for values, at in zip(known, last, strict=True)])
    is_dated, synthetic = bool(rows.is_dated.iloc[0]), bool(rows.synthetic.any())
    return Series(names, time_us, end_us, min(steps_us), value, is_dated, synthetic)


def _known(
    rows: pd.DataFrame, longest_gap_s: float, hint: str
) -> tuple[int, int, int, np.ndarray, np.ndarray]:
    """Of the series that has these rows: the time of the first, the end of the last, their median step, and the times
    and values that are known, by rising time."""
    first, row_us = rows.iloc[0], np.sort(rows.time_us.to_numpy())
    steps_us = np.diff(row_us)
    known = rows.dropna(subset="value").drop_duplicates(["time_us", "value"])
    known = known.sort_values("time_us", kind="stable")
    twice = known[known.time_us.duplicated(keep=False)]
    if len(twice):
        (_, one), (_, other), *_ = twice.iterrows()
        line = f", line {other.line}" if other.line else ""
        problem = (
            f"holds {one.value:g} and {other.value:g} of {first.series} at {_text(one.time_us, one.is_dated)}"
        )
        raise InputError(f"{other.place}{line}", problem, f"keep one of them{hint}")
    if known.empty:
        raise InputError(first.place, f"holds no value of {first.series}", "leave it out")
    if not steps_us.any():
        raise InputError(first.place, f"holds 1 values of {first.series}", "give two or more")
    step_us = int(np.quantile(steps_us[steps_us > 0], 0.5, method="lower"))
    end_us = int(row_us[-1]) + step_us
    since_us = np.concatenate([row_us[:1], known.time_us])
    gap_us = np.diff(since_us, append=end_us)
    if gap_us.max() > max(longest_gap_s * 1e6, 1.5 * step_us):
        at = int(gap_us.argmax())
        since = _text(since_us[at], first.is_dated)
        problem = f"has no value of {first.series} for {gap_us[at] / 3.6e9:g} h after {since}"
        longer = f"fill the gap, or raise longest_gap_s (now {longest_gap_s:g})"
        raise InputError(first.place, problem, longer)
    return int(row_us[0]), end_us, step_us, known.time_us.to_numpy(), known.value.to_numpy()


def _text(time_us: float, is_dated: bool) -> str:
    return f"{utc(int(time_us))} UTC" if is_dated else f"{time_us / 1e6:.12g} s"
