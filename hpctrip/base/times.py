"""ISO 8601 times in CSV files: in UTC, with an offset, or in a named time zone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from hpctrip.base.csv import Table

_TIME = re.compile(
    r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_zone(name: str) -> str:
    """`name`, for a pydantic validator. Raises ValueError where it is not an IANA time zone."""
    try:
        zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; write e.g. 'UTC' or 'Europe/Madrid'") from None
    return name


def zone(name: str) -> tzinfo:
    """The time zone of this name; UTC works without a time zone database."""
    return UTC if name == "UTC" else ZoneInfo(name)


def moment_us(text: str, local: tzinfo, fold: int = 0) -> int:
    """Microseconds from 1970 to a time, which without an offset is in the zone `local`; `fold` = 1 chooses the second
    one where the clocks show it twice. Raises ValueError where the text is not a time or the clocks skip it."""
    try:
        if not _TIME.fullmatch(text):
            raise ValueError
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is no time such as 2022-01-01 00:05:00") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=local, fold=fold)
        if time.astimezone(UTC).astimezone(local).replace(tzinfo=None) != time.replace(tzinfo=None):
            raise ValueError("is a time that the clocks of its zone skip in spring")
    return (time - _EPOCH) // timedelta(microseconds=1)


def moments_us(
    table: Table, column: str, zone_name: str = "UTC", keys: Sequence[str] | None = None
) -> np.ndarray:
    """A column of times, [R] int64 microseconds since 1970; those without an offset are of this zone.

    Where clocks are set back, an hour has the same local times twice. The order of the rows of one key (of all rows
    without `keys` [R]) tells them apart: a time that would not be after the one before it is the second.
    InputError names the first line that is not a time.
    """
    local, times_us = zone(zone_name), np.zeros(len(table.lines), dtype=np.int64)
    before: dict[str, int] = {}
    for row, text in enumerate(table.column(column)):
        key = keys[row] if keys else ""
        try:
            time_us = moment_us(text, local)
            if zone_name != "UTC" and time_us <= before.get(key, time_us - 1):
                time_us = moment_us(text, local, fold=1)
        except ValueError as error:
            table.refuse(column, np.arange(len(times_us)) == row, str(error))
        times_us[row] = before[key] = time_us
    return times_us
