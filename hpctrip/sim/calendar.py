"""The calendar of a run: the one moment at which simulated time begins in all series that have dates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpctrip.base.errors import InputError
from hpctrip.sim.times import utc


@dataclass(frozen=True)
class Calendar:
    """The dates of one series. Times are microseconds since 1970."""

    first_us: int
    """Beginning of its data."""
    end_us: int
    """End of its data."""
    start_us: int | None = None
    """The moment at which simulated time begins; None: the input names none."""

    @property
    def begin_us(self) -> int:
        """The moment at which simulated time begins: the one that is named, else the first of the data."""
        return self.first_us if self.start_us is None else self.start_us

    @property
    def offset_s(self) -> float:
        """Seconds from the beginning of the data to the start of simulated time."""
        return (self.begin_us - self.first_us) / 1e6

    @property
    def duration_s(self) -> float:
        """Length of the data."""
        return (self.end_us - self.first_us) / 1e6

    def __str__(self) -> str:
        return f"{utc(self.first_us)} to {utc(self.end_us)} UTC"


def shared(calendars: Mapping[str, Calendar]) -> dict[str, Calendar]:
    """The calendars of the series of these input tables, {table: calendar}, with a start for each, and cut to the
    simulated time that all of them cover.

    Simulated time begins at the one moment that the input names, else at the first that all data know. A table that
    names a moment of its own keeps it, so that data of different years can be paired. Raises InputError where a start
    lies outside the data, or the data have no time in common.
    """
    named = {table: dates.start_us for table, dates in calendars.items() if dates.start_us is not None}
    default_us = max((dates.first_us for dates in calendars.values()), default=0)
    if len(set(named.values())) == 1:
        (default_us,) = set(named.values())
    elif named and len(named) < len(calendars):
        (unnamed, *_) = calendars.keys() - named.keys()
        tables = " and ".join(f"{table}.start" for table in named)
        raise InputError(f"{unnamed}.start", f"is absent, but {tables} differ", "name it, too")
    starts = {table: named.get(table, default_us) for table in calendars}
    for table, dates in calendars.items():
        if not dates.first_us <= starts[table] < dates.end_us:
            _refuse_start(table, starts[table], calendars, named)
    before_us = min((starts[table] - dates.first_us for table, dates in calendars.items()), default=0)
    after_us = min((dates.end_us - starts[table] for table, dates in calendars.items()), default=0)
    return {
        table: Calendar(start_us - before_us, start_us + after_us, start_us)
        for table, start_us in starts.items()
    }


def _refuse_start(
    table: str, start_us: int, calendars: Mapping[str, Calendar], named: Mapping[str, int]
) -> None:
    """Raise InputError for a start of simulated time at which a table has no data."""
    if named:
        place = f"{table if table in named else next(iter(named))}.start = {utc(start_us)!r}"
        raise InputError(place, f"lies outside the data of {table}, {calendars[table]}", "name another start")
    periods = ", ".join(f"{name} {dates}" for name, dates in calendars.items())
    starts = ", ".join(f"{name}.start" for name in calendars)
    raise InputError(
        " and ".join(calendars),
        f"have no time in common: {periods}",
        f"give data of one period, or name the moment of each at which simulated time begins ({starts})",
    )
