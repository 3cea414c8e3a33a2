"""What a calibration found: the bars, the error, and what the figure can and cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpctrip.figures.common.plot import aligned
from hpctrip.study.calibrate.fit import not_told_apart, profile
from hpctrip.study.calibrate.points import Point
from hpctrip.study.calibrate.runs import Values
from hpctrip.study.calibrate.search import Found
from hpctrip.study.grid import shown

BARS = ("bar", "paper h", "best h", "as the inputs are, h")
PROFILE = ("constant", "value", "error", "verdict")

METHOD = (
    "Error: root mean square of ln(ours / the paper's) over one absolute time and the ratios of the other bars to it; "
    "a typical factor is e to this. A value of a constant is told apart from the best one where even the best point "
    "that has it lies outside the 95 % region of that constant by its profile (Bates & Watts 1988, Sec. 6.1), with "
    "the scatter of the bars estimated by the best fit itself."
)


@dataclass(frozen=True)
class Row:
    """One value of one constant."""

    key: str
    value: Any
    point: Point
    """The best one that has it."""
    verdict: str


@dataclass(frozen=True)
class Report:
    """What is known so far."""

    found: Found
    again: str
    """The command that repeats it."""

    @property
    def labels(self) -> list[str]:
        """Of the bars."""
        return [bar.label for bar in self.found.runs.file.bar]

    @cached_property
    def region(self) -> float:
        """The misfit up to which points are as good as the best; NaN where none is known."""
        best = self.found.best
        if best is None:
            return math.nan
        return not_told_apart(best.bars.misfit, len(self.labels), len(self.found.runs.keys))

    @cached_property
    def rows(self) -> list[Row]:
        """The profile of every constant."""
        points, made = self.found.points, []
        for place, key in enumerate(self.found.runs.keys):
            values = [point.values[place] for point in points]
            best = profile(values, [point.bars.misfit for point in points])
            for value in dict.fromkeys(point[place] for point in self.found.runs.points):
                point = points[best[value]]
                made.append(Row(key, value, point, self._verdict(place, point)))
        return made

    def _verdict(self, place: int, point: Point) -> str:
        best = self.found.best
        if best is None:
            return "not known"
        if point.values[place] == best.values[place]:
            return "best"
        if point.bars.misfit > self.region:
            return "told apart"
        return "not told apart" if point.bars.known else "not told apart so far"

    @property
    def lines(self) -> Iterator[str]:
        """As it is printed."""
        yield from aligned(BARS, self.bar_rows)
        yield from self.said
        yield from aligned(PROFILE, self.profile_rows)

    @property
    def said(self) -> Iterator[str]:
        """The result in sentences."""
        found, default = self.found, self.found.default
        best = found.best
        yield f"the inputs as they are ({self.called(default.values)}): error {default.bars}"
        if best is None:
            yield "no point has all its bars yet"
        else:
            yield f"best of {sum(p.bars.known for p in found.points)} known points: error {best.bars}"
            yield f"  with {self.called(best.values)}, target accuracy {best.target:.1%}"
            alike = sum(p.bars.known and p.bars.misfit <= self.region for p in found.points) - 1
            yield f"{alike} other points fit as well, by the 95 % region of one constant"
            better = best.bars.misfit < default.bars.misfit
            if not better and default.bars.known:
                yield "no point is better than the inputs as they are"
            if not best.bars.exact:
                yield "a bar of it did not reach the target: its error is a lower bound; raise stop.max_rounds"
        left, unreached = len(found.promising), len(found.unreached)
        if left:
            yield f"{left} points may be better and are not trained"
        if unreached:
            yield f"{unreached} points may be better: a bar did not reach its target; raise stop.max_rounds"
        if not left and not unreached:
            yield "no other point can be better"

    @property
    def bar_rows(self) -> list[tuple[str, ...]]:
        """One a bar, in the order of `BARS`."""
        columns = [self.found.best, self.found.default]
        return [
            (bar.label, f"{bar.hours:g}", *(point.hours_text(number) if point else "-" for point in columns))
            for number, bar in enumerate(self.found.runs.file.bar)
        ]

    @property
    def profile_rows(self) -> list[tuple[str, ...]]:
        """One a value of a constant, in the order of `PROFILE`."""
        return [(row.key, shown(row.value), str(row.point.bars), row.verdict) for row in self.rows]

    def called(self, values: Values) -> str:
        """The constants and their values."""
        pairs = zip(self.found.runs.keys, values, strict=True)
        return ", ".join(f"{key} = {shown(value)}" for key, value in pairs)
