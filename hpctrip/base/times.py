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


def moment_us(text: str, local: tzinfo) -> int:
    """Microseconds from 1970 to a time, which without an offset is in the zone `local`; the first one of an ambiguous
    hour. Raises ValueError where the text is not a time or the clocks skip it."""
    if not _TIME.fullmatch(text):
        raise ValueError("is no time such as 2022-01-01 00:05:00")
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        found = found.replace(tzinfo=local)
        if found.astimezone(UTC).astimezone(local).replace(tzinfo=None) != found.replace(tzinfo=None):
            raise ValueError("is a time that the clocks of its zone skip in spring")
    return (found - _EPOCH) // timedelta(microseconds=1)


def moments_us(table: Table, column: str, zone_name: str, keys: Sequence[str] | None = None) -> np.ndarray:
    """A column of times, [R] int64 microseconds since 1970; those without an offset are of this zone.

    Where clocks are set back, an hour has the same local times twice. The order of the rows of one key (of all rows
    without `keys` [R]) tells them apart: a time that would not be after the one before it is the second.
    InputError names the first line that is not a time.
    """
    local, wrong, problem = zone(zone_name), np.zeros(len(table.lines), dtype=bool), ""
    found = np.zeros(len(table.lines), dtype=np.int64)
    before: dict[str, int] = {}
    for row, text in enumerate(table.column(column)):
        try:
            found[row] = moment_us(text, local)
        except ValueError as error:
            wrong[row], problem = True, str(error)
            break
        key = keys[row] if keys else ""
        if found[row] <= before.get(key, found[row] - 1) and zone_name != "UTC":
            found[row] = _second(text, local, int(found[row]))
        before[key] = int(found[row])
    table.refuse(column, wrong, problem)
    return found


def _second(text: str, local: tzinfo, first_us: int) -> int:
    """The second moment at which the clocks show this time, or the first where they show it once."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        return first_us
    return (found.replace(tzinfo=local, fold=1) - _EPOCH) // timedelta(microseconds=1)
