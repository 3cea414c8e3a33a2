"""Signals that are read from files: what their layouts have in common. Shapes: Z zones, K values of a zone.

A value holds until the next one. A missing or empty value is bridged by the one before it, as long as no gap is longer
than `longest_gap_s`; equal repeated rows count once, and rows may be in any order. All zones begin and end where the
shortest does.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.series import Signal
from hpctrip.base.sources import Reads, files_at
from hpctrip.base.text import unknown_name
from hpctrip.base.times import moment_us, zone
from hpctrip.base.units import Seconds
from hpctrip.sim.signals.base import HIGHEST, LOWEST, GridSignal, SignalModel, zones_by_seed
from hpctrip.sim.sites import SiteLaw


class Series(NamedTuple):
    """What one file says of one zone."""

    place: str
    zone: str
    time_us: np.ndarray
    """[K] since 1970."""
    value: np.ndarray
    """[K] for a kilowatt-hour; NaN where it is missing."""


def signal_files(value: str) -> list[Path]:
    """The files of a path, a folder or a pattern. InputError where there are none."""
    found = (
        [Path(name) for name in sorted(glob.glob(value))]
        if any(c in value for c in "*?[")
        else files_at(value)
    )
    if not found:
        raise InputError(value, "names no file", "give a file, a folder or a pattern of files")
    return found


def _start(text: str) -> str:
    try:
        moment_us(text, zone("UTC"))
    except ValueError as error:
        raise ValueError(f"{text!r} {error}") from None
    return text


class FileSignal(SignalModel):
    """Base of the signals from files."""

    path: Annotated[PathName, Reads(find=signal_files)]
    """A file, a folder or a pattern of files; several files may be of one zone or of several."""
    start: Annotated[str, AfterValidator(_start)] | None = None
    """When simulated time begins, in UTC unless it says otherwise, e.g. "2022-06-01T00:00". Absent: with the data."""
    at_end: Literal["wrap", "raise"] = "wrap"
    """When simulated time outlasts the data: start them again, or stop with an error."""
    site_column: str | None = None
    """The column of the sites' CSV file that names each site's zone; absent: each draws one by the seed."""
    longest_gap_s: Seconds = Field(6 * 3600.0, gt=0)
    """Missing values are bridged by the one before, up to this time between two of them; a longer gap is an error."""

    def read(self, path: Path, place: str) -> Sequence[Series]:
        """The zones in one file. Raises InputError that names file, line and value."""
        raise NotImplementedError

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """Reads the files and gives every site its zone."""
        read = [
            series
            for path in signal_files(self.path)
            for series in self.read(path, f"{table}.path = {str(path)!r}")
        ]
        names = sorted({series.zone for series in read})
        joined = [_joined([s for s in read if s.zone == name], table, self.longest_gap_s) for name in names]
        first_us = max(int(series.time_us[0]) for series in joined)
        end_us = min(_end_us(series) for series in joined)
        if end_us <= first_us:
            raise InputError(
                f"{table}.path = {self.path!r}",
                "its zones have no time in common",
                "give files of one period",
            )
        duration_s, offset_s = (end_us - first_us) / 1e6, 0.0
        if self.start is not None:
            offset_s = (moment_us(self.start, zone("UTC")) - first_us) / 1e6
            if not 0 <= offset_s < duration_s:
                said = " to ".join(
                    str(np.datetime64(us, "us").astype("datetime64[s]")) for us in (first_us, end_us)
                )
                raise InputError(f"{table}.start = {self.start!r}", f"lies outside the data, {said} UTC")
        return GridSignal(
            names,
            [_cut(series, first_us, duration_s) for series in joined],
            self._zones(names, table, sites, num_sites, seed),
            any("synthetic" in series.place.lower() for series in joined),
            offset_s,
            np.inf if self.at_end == "wrap" else duration_s - offset_s,
            table,
        )

    def _zones(
        self, names: Sequence[str], table: str, sites: SiteLaw, num_sites: int, seed: int
    ) -> np.ndarray:
        if self.site_column is None:
            return zones_by_seed(num_sites, len(names), seed)
        wanted = sites.labels(self.site_column)
        for site, name in enumerate(wanted):
            if name not in names:
                problem = f"site {site} is in {name!r}, of which there are no data"
                raise InputError(
                    f"{table}.site_column = {self.site_column!r}", problem, unknown_name(name, names)
                )
        return np.array([names.index(name) for name in wanted], dtype=np.int64)


def _joined(parts: Sequence[Series], table: str, longest_gap_s: float) -> Series:
    """One zone by rising time, without what is missing. InputError where it contradicts itself or has a long gap."""
    place, name = parts[0].place, parts[0].zone
    time_us, value = (np.concatenate([part[i] for part in parts]) for i in (2, 3))
    known = ~np.isnan(value)
    time_us, value = time_us[known], value[known]
    low = LOWEST[table]
    if len(value) < 2:
        raise InputError(place, f"holds {len(value)} values of {name}", "give two or more")
    if value.min() < low or value.max() > HIGHEST:
        wrong = value.min() if value.min() < low else value.max()
        raise InputError(place, f"holds {wrong:g} of {name}", f"a kilowatt-hour has {low:g} to {HIGHEST:g}")
    order = np.lexsort((value, time_us))
    time_us, value = time_us[order], value[order]
    same = np.diff(time_us) == 0
    if (same & (np.diff(value) != 0)).any():
        at = int(np.flatnonzero(same & (np.diff(value) != 0))[0])
        when = np.datetime64(int(time_us[at]), "us").astype("datetime64[s]")
        problem = f"holds {value[at]:g} and {value[at + 1]:g} of {name} at {when} UTC"
        raise InputError(place, problem, "keep one of them")
    first = np.concatenate([[True], ~same])
    time_us, value = time_us[first], value[first]
    steps_s = np.diff(time_us) / 1e6
    if not len(steps_s):
        raise InputError(place, f"holds one time of {name}", "give two or more")
    if steps_s.max() > longest_gap_s:
        at = int(steps_s.argmax())
        when = np.datetime64(int(time_us[at]), "us").astype("datetime64[s]")
        raise InputError(
            place,
            f"has no value of {name} for {steps_s[at] / 3600:g} h after {when} UTC",
            f"fill the gap, or raise {table}.longest_gap_s (now {longest_gap_s:g})",
        )
    return Series(place, name, time_us, value)


def _end_us(series: Series) -> int:
    """The last value holds as long as values usually do."""
    return int(series.time_us[-1]) + int(np.median(np.diff(series.time_us)))


def _cut(series: Series, first_us: int, duration_s: float) -> Signal:
    """From a time on, for a while."""
    start_s = (series.time_us - first_us) / 1e6
    first = int(np.searchsorted(start_s, 0.0, side="right")) - 1
    inside = slice(first, int(np.searchsorted(start_s, duration_s, side="left")))
    return Signal(np.maximum(start_s[inside], 0.0), series.value[inside], duration_s)
