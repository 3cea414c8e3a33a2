"""What a calibration found, for people and for other programs: lines, Markdown, JSON, two tables and an input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pandas as pd
import tomli_w

from hpctrip.base.inputs import Tables, deep, nested
from hpctrip.base.text import markdown_table
from hpctrip.figures.common.plot import aligned
from hpctrip.study.calibrate.fit import not_told_apart, profile
from hpctrip.study.calibrate.points import Point
from hpctrip.study.calibrate.runs import Values
from hpctrip.study.calibrate.search import Found
from hpctrip.study.grid import shown

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
    def _bars(self) -> list[str]:
        return [bar.label for bar in self.found.runs.file.bar]

    @cached_property
    def region(self) -> float:
        """The misfit up to which points are as good as the best; NaN where none is known."""
        best = self.found.best
        if best is None:
            return math.nan
        return not_told_apart(best.bars.misfit, len(self._bars), len(self.found.runs.keys))

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
        yield from aligned(("bar", "paper h", "best h", "as the inputs are, h"), self._bar_rows())
        yield from self._said()
        yield from aligned(("constant", "value", "error", "verdict"), self._profile_rows())

    def _said(self) -> Iterator[str]:
        found, default = self.found, self.found.default
        best = found.best
        yield f"the inputs as they are ({self._called(default.values)}): error {_error(default)}"
        if best is None:
            yield "no point has all its bars yet"
        else:
            yield f"best of {sum(p.bars.known for p in found.points)} known points: error {_error(best)}"
            yield f"  with {self._called(best.values)}, target accuracy {best.target:.1%}"
            better = best.bars.misfit < default.bars.misfit
            if not better and default.bars.known:
                yield "no point is better than the inputs as they are"
            if not best.bars.exact:
                yield "a bar of it did not reach the target: its error is a lower bound; raise stop.max_rounds"
        left = len(found.promising)
        yield f"{left} points may be better and are not trained" if left else "no other point can be better"

    def _bar_rows(self) -> list[tuple[str, ...]]:
        columns = [self.found.best, self.found.default]
        return [
            (bar.label, f"{bar.hours:g}", *(_hours(point, number) for point in columns))
            for number, bar in enumerate(self.found.runs.file.bar)
        ]

    def _profile_rows(self) -> list[tuple[str, ...]]:
        return [(row.key, shown(row.value), _error(row.point), row.verdict) for row in self.rows]

    def _called(self, values: Values) -> str:
        pairs = zip(self.found.runs.keys, values, strict=True)
        return ", ".join(f"{key} = {shown(value)}" for key, value in pairs)

    @property
    def markdown(self) -> str:
        """The same as Markdown."""
        file = self.found.runs.file
        parts = [
            f"# {file.title or file.name}",
            f"`{self.again}`",
            METHOD,
            markdown_table(("bar", "paper h", "best h", "as the inputs are, h"), self._bar_rows()),
            "\n".join(f"* {line.strip()}" for line in self._said()),
            markdown_table(("constant", "value", "error", "verdict"), self._profile_rows()),
        ]
        return "\n\n".join(parts) + "\n"

    @property
    def points(self) -> pd.DataFrame:
        """Every point, the best first."""
        rows = []
        for point in self.found.points:
            named = dict(zip(self.found.runs.keys, point.values, strict=True))
            hours = {f"{label} h": value for label, value in zip(self._bars, point.hours, strict=True)}
            rows.append(
                named | {"target_accuracy": point.target, "error": point.bars.rms, "is": _is(point)} | hours
            )
        return pd.DataFrame(rows)

    @property
    def profile(self) -> pd.DataFrame:
        """Every value of every constant."""
        return pd.DataFrame(
            {
                "constant": row.key,
                "value": shown(row.value),
                "error": row.point.bars.rms,
                "is": _is(row.point),
                "verdict": row.verdict,
            }
            for row in self.rows
        )

    @property
    def plain(self) -> dict[str, Any]:
        """For other programs."""

        def said(point: Point | None) -> dict[str, Any] | None:
            if point is None:
                return None
            return {
                "constants": dict(zip(self.found.runs.keys, point.values, strict=True)),
                "target_accuracy": point.target,
                "error": point.bars.rms,
                "is": _is(point),
                "hours": dict(zip(self._bars, point.hours.tolist(), strict=True)),
            }

        return {
            "calibration": self.found.runs.file.name,
            "command": self.again,
            "paper_hours": {bar.label: bar.hours for bar in self.found.runs.file.bar},
            "best": said(self.found.best),
            "as_the_inputs_are": said(self.found.default),
            "points_that_may_be_better": len(self.found.promising),
            "constants": [
                {
                    "key": r.key,
                    "value": r.value,
                    "error": r.point.bars.rms,
                    "is": _is(r.point),
                    "verdict": r.verdict,
                }
                for r in self.rows
            ],
        }

    @property
    def overlay(self) -> str | None:
        """An input to be laid over others: what was fitted, and what of the runs it holds for; None: nothing is yet."""
        best, runs = self.found.best, self.found.runs
        if best is None:
            return None
        small = runs.file.small.tables if runs.asked.small else {}
        common = deep(runs.file.common, small)
        samples = {key: common["workload"][key] for key in SAMPLES if key in common.get("workload", {})}
        tables: Tables = reduce(deep, map(nested, runs.keys, best.values), {})
        tables = deep(tables, {"stop": {"target_accuracy": best.target}})
        tables = deep(tables, {"workload": samples}) if samples else tables
        default = self.found.default
        comment = [
            f"Fitted by `{self.again}` to {', '.join(self._bars)}:",
            f"error {_error(best)}, against {_error(default)} of the inputs as they are.",
            "It holds for so many samples; what else it says of the paper is a test, not a fit.",
        ]
        return "".join(f"# {line}\n" for line in comment) + tomli_w.dumps(tables)


SAMPLES = ("train_samples", "test_samples")
"""Keys of the workload on which the rounds to the target, and so the hours, depend."""


def _hours(point: Point | None, number: int) -> str:
    if point is None or math.isnan(point.hours[number]):
        return "-"
    return f"{'> ' if point.bars.at_least[number] else ''}{point.hours[number]:.3g}"


def _is(point: Point) -> str:
    return "exact" if point.bars.exact else "at least"


def _error(point: Point) -> str:
    return f"{'' if point.bars.exact else 'at least '}{point.bars.rms:.3f}"
