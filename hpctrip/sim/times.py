"""Times in data files: ISO 8601, in UTC, with an offset or in a named time zone, which pandas reads; or numbers in a
stated unit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, tzinfo
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from pydantic import AfterValidator, BeforeValidator

from hpctrip.base.csv import Table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.units import HOUR_S

_FORM = r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)(?: ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
"""A date, alone or with a time of day, which may have an offset: the forms of ISO 8601 that programs write. Forms that
could be plain numbers (20220101) are left out."""
_WANTED = "is not a time such as 2022-01-01 00:05:00, 2022-01-01T00:05:00.000Z or 2022-01-01T00:05+02:00"

TimeUnit = Literal["us", "ms", "s"]
"""Unit of times that are numbers."""
_UNIT_US: dict[TimeUnit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBERED = [f"time_{unit}" for unit in _UNIT_US]
_DATED_FROM_US, _LATEST_US = 10**15, 10**16
"""Numbers from 1e9 s on (2001) count from 1970, smaller ones from a beginning of the file's own; latest time."""
_INTERVAL_US = (1e6, 24 * HOUR_S * 1e6)
"""Shortest and longest median interval of a series: another one points to another unit of time."""

SHOWN_TWICE = (
    "; where clocks that were set back show the time twice, set timezone, or write times with their offsets"
)
"""Way out where two rows of one time contradict each other: none of them may be wrong."""


class NotATimeError(ValueError):
    """The text of row number `row` is not one moment; `hint` tells what to do about it."""

    def __init__(self, row: int, problem: str, hint: str = ""):
        super().__init__(problem)
        self.row, self.hint = row, hint


def _time_zone(name: str) -> str:
    try:
        _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is not a time zone; write e.g. 'UTC' or 'Europe/Madrid'") from None
    return name


TimeZone = Annotated[str, AfterValidator(_time_zone)]
"""Type of an input key that names an IANA time zone."""


def _zone(name: str) -> tzinfo:
    """The time zone of this name; UTC works without a time zone database."""
    return UTC if name == "UTC" else ZoneInfo(name)


def _text(value: Any) -> Any:
    """A date of TOML as its text; any other value unchanged."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, date) else value


def _moment(text: str) -> str:
    try:
        moments_us([text])
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return text


Moment = Annotated[str, BeforeValidator(_text), AfterValidator(_moment)]
"""Type of an input key that is a time, in UTC unless it has an offset: a text, or a date of TOML."""


def moment_us(text: str) -> int:
    """Microseconds from 1970 to a `Moment`."""
    return int(moments_us([text])[0])


def utc(time_us: int) -> str:
    """A time in microseconds since 1970 as text, as in "2022-06-01T00:00:00"."""
    return str(np.datetime64(int(time_us), "us").astype("datetime64[s]"))


def read_times(
    table: Table,
    column: str = "time",
    zone_name: str = "UTC",
    keys: Sequence[str] | None = None,
    unit: TimeUnit | None = None,
) -> tuple[np.ndarray, bool]:
    """(microseconds [R] int64, whether they count from 1970) of the times of a series.

    A column holds numbers if the input states their `unit` or its name ends in one, `_s`, `_ms` or `_us`; else ISO
    8601, as for `moments_us`. InputError names the first line that is not a time, and refuses a median interval below a
    second or above a day.
    """
    unit = unit or next((name for name in _UNIT_US if column.endswith(f"_{name}")), None)
    if unit is None:
        time_us, us, units = column_us(table, column, zone_name, keys), 1, {}
    else:
        us, units = _UNIT_US[unit], _UNIT_US
        time_us = table.numbers(column) * us
    steps_us = np.diff(np.unique(time_us))
    step_us, (low_us, high_us) = np.median(steps_us) if len(steps_us) else HOUR_S * 1e6, _INTERVAL_US
    others = [name for name in units if low_us <= step_us / us * units[name] <= high_us and name != unit]
    key = 'set time_unit = "{}"' if column == "time" else "name the column time_{}"
    hint = key.format(others[0]) if others else "check the times"
    table.refuse(column, np.abs(time_us) > _LATEST_US, f"is not a time in {unit}", hint)
    if not low_us <= step_us <= high_us:
        problem = f"column {column} has a median interval of {step_us / 1e6:g} s; a series has 1 s to 1 day"
        raise InputError(table.place, problem, hint)
    is_dated = unit is None or bool(time_us.min(initial=_LATEST_US) >= _DATED_FROM_US)
    return np.rint(time_us).astype(np.int64), is_dated


def time_column(table: Table) -> str:
    """The column of times of a file: time, time_s, time_ms or time_us. InputError where it has not one of them."""
    present = [name for name in ("time", *_NUMBERED) if name in table.columns]
    if len(present) != 1:
        problem = f"has {' and '.join(present) or 'no column of times'} among its columns {', '.join(table.columns)}"
        hint = f"name one column of times: time (ISO 8601), or {', '.join(_NUMBERED)} (numbers)"
        raise InputError(table.place, problem, hint)
    return present[0]


def column_us(
    table: Table, column: str, zone_name: str = "UTC", keys: Sequence[str] | None = None
) -> np.ndarray:
    """The times in a column of R rows, as `moments_us`. InputError names the first line that is not a time."""
    try:
        return moments_us(table.column(column), zone_name, keys)
    except NotATimeError as error:
        is_number = re.fullmatch(r"[\d.]+", table.columns[column][error.row])
        hint = f"numbers are in a column {', '.join(_NUMBERED)}" if is_number else error.hint
        table.refuse(column, np.arange(len(table.lines)) == error.row, str(error), hint)
        raise


def moments_us(texts: Sequence[str], zone_name: str = "UTC", keys: Sequence[str] | None = None) -> np.ndarray:
    """Microseconds since 1970, [R] int64, of times [R]; those without an offset are in this time zone. Digits below a
    microsecond are cut off.

    Where clocks are set back, they show an hour twice. The order of the rows of one key (of all rows without `keys`
    [R]) tells the two apart, whether times rise or fall from row to row. Raises NotATimeError for the first text that
    is not a time, that the clocks skip in spring, or that they show twice among rows in no order.
    """
    parts = pd.Series(texts, dtype="str").str.extract(rf"^{_FORM}\Z")
    offset = parts[1].fillna("").replace({"UTC": "Z", "GMT": "Z"})
    times = pd.to_datetime(parts[0] + offset, format="ISO8601", utc=True, errors="coerce")
    _refuse(times.isna(), _WANTED)
    local = offset == ""
    if zone_name != "UTC" and local.any():
        times[local] = _in_zone(times[local].dt.tz_localize(None), zone_name, keys)
    return times.dt.as_unit("us").astype("int64").to_numpy()


def _in_zone(wall: pd.Series, zone_name: str, keys: Sequence[str] | None) -> pd.Series:
    """The moments at which the clocks of a zone show these times; their index is the number of the row."""
    zone = _zone(zone_name)
    skipped = wall.dt.tz_localize(zone, ambiguous=np.ones(len(wall), bool), nonexistent="NaT").isna()
    _refuse(skipped, "is a time that the clocks of its zone skip in spring")
    twice = wall.dt.tz_localize(zone, ambiguous="NaT").isna()
    second = np.zeros(len(wall), bool)
    key = np.zeros(len(wall)) if keys is None else np.asarray(keys)[wall.index]
    for _, group in wall.groupby(key) if twice.any() else ():
        shown_twice = twice[group.index]
        steps = group[~shown_twice].diff().dropna()
        rises, falls = (steps >= pd.Timedelta(0)).all(), (steps <= pd.Timedelta(0)).all()
        if shown_twice.any() and not rises and not falls:
            problem = (
                f"is shown twice by the clocks of {zone_name}, and rows in no order do not tell which it is"
            )
            hint = "sort the rows by time, or write times with their offsets"
            _refuse(twice & twice.index.isin(group.index), problem, hint)
        in_order = group if rises else group[::-1]
        # the second showing comes after a time that is not earlier
        second[wall.index.get_indexer(in_order.index)] = in_order <= in_order.cummax().shift()
    return wall.dt.tz_localize(zone, ambiguous=~second).dt.tz_convert("UTC")


def _refuse(wrong: pd.Series, problem: str, hint: str = "") -> None:
    """Raise NotATimeError for the first row that is `wrong`; its index is the number of the row."""
    if wrong.any():
        raise NotATimeError(int(wrong.idxmax()), problem, hint)
