"""Fit constants that a paper does not state to the bars of one of its figures, from the table of a study over them.

    python -m hpctrip study calibration --small
    python postprocess/calibrate.py results/studies/calibration-small/table.csv

The study's axes are the constants and one axis of bars (--bars). A point is one choice of all constants. With r_i =
ln(our hours / the paper's) of bar i, bar 0 being the one that the others are ratios of, the misfit of a point is

    Q = r_0^2 + sum over i > 0 of (r_i - r_0)^2

which is one absolute time and n - 1 ratios; the error is sqrt(Q / n), and a typical factor is e to that. A bar that did
not reach the target with every seed took at least the hours that it had: Q is then the least that it can be. A value of
a constant is excluded if even the best point with it lies outside the 95 % region of that
constant by its profile, with the scatter of the bars estimated by the best fit itself (Bates & Watts 1988, Sec. 6.1).
Writes points.csv and profile.csv beside the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pandas as pd
from paper.claims import CENTRAL_50, FIG09_HOURS, POWERTRIP
from paper.script import run_script

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import replace_file
from hpctrip.base.stats import student_t
from hpctrip.base.text import aligned
from hpctrip.base.units import HOUR_S
from hpctrip.record.formats import csv_bytes

PAPER_HOURS = FIG09_HOURS | {CENTRAL_50: FIG09_HOURS[POWERTRIP]}
"""The bars of Fig. 9; "centralized 50 %" is "about equal" to PowerTrip."""


@dataclass(frozen=True)
class Point:
    """One choice of all constants."""

    constants: dict[str, str]
    hours: np.ndarray
    """Hours of every bar, [n]; first the bar that the others are ratios of."""
    at_least: np.ndarray
    """Whether the hours are a lower bound, [n] bool."""
    paper: np.ndarray
    """The hours of the paper, [n]."""

    @property
    def misfit(self) -> float:
        """Q, or the least that it can be."""
        r = np.log(self.hours / self.paper)
        exact, bounds = r[1:][~self.at_least[1:]], r[1:][self.at_least[1:]]
        reference = max(r[0], _best_reference(exact, bounds)) if self.at_least[0] else r[0]
        over = np.maximum(bounds - reference, 0)
        return float(reference**2 + ((exact - reference) ** 2).sum() + (over**2).sum())

    @property
    def error(self) -> float:
        """The root mean square of its n terms."""
        return math.sqrt(self.misfit / len(self.hours))

    @property
    def is_exact(self) -> bool:
        """Whether every bar reached its target with every seed."""
        return not self.at_least.any()

    @property
    def row(self) -> dict[str, float | str]:
        """The error, and whether it is exact, as columns of the tables."""
        return {"error": self.error, "is": "exact" if self.is_exact else "at least"}

    def __str__(self) -> str:
        return f"{'' if self.is_exact else 'at least '}{self.error:.3f}"


def _best_reference(exact: np.ndarray, bounds: np.ndarray) -> float:
    """The r_0 of the least Q. A bound counts where it lies above r_0; these are fewer the higher r_0 is."""
    while True:
        reference = (exact.sum() + bounds.sum()) / (1 + len(exact) + len(bounds))
        above = bounds[bounds > reference]
        if len(above) == len(bounds):
            return float(reference)
        bounds = above


def read_points(table: str, bars: str, paper_hours: Mapping[str, float]) -> list[Point]:
    """The points of a study's table that have all bars, the best first. Raises InputError where there are none."""
    rows = read_table(table)
    rows.require("variant", bars, "target_accuracy", "mean_s", "num_seeds", "num_reached")
    names = list(rows.columns)
    axes = names[names.index("variant") + 1 : names.index("target_accuracy")]
    constants = [name for name in axes if name != bars]
    hours = rows.numbers("mean_s", may_lack=True) / HOUR_S
    at_least = rows.integers("num_reached") < rows.integers("num_seeds")
    by_point: dict[tuple[str, ...], dict[str, int]] = {}
    for row, label in enumerate(rows.columns[bars]):
        if not math.isnan(hours[row]):
            by_point.setdefault(tuple(rows.columns[name][row] for name in constants), {})[label] = row
    points = []
    for values, at in by_point.items():
        if paper_hours.keys() <= at.keys():
            place = [at[label] for label in paper_hours]
            paper = np.array(list(paper_hours.values()))
            points.append(
                Point(dict(zip(constants, values, strict=True)), hours[place], at_least[place], paper)
            )
    if not points or not constants:
        problem = f"has no point with a finished run of every bar ({', '.join(paper_hours)})"
        raise InputError(table, problem, "give the table.csv of a study over constants, and --bars")
    if len(paper_hours) <= len(constants):
        problem = f"{len(constants)} constants cannot be fitted to {len(paper_hours)} bars"
        raise InputError(table, problem, "vary fewer constants")
    return sorted(points, key=lambda point: (point.misfit, not point.is_exact))


def region(best: Point) -> float:
    """The misfit up to which points are as good as the best one: the 95 % region of one constant by its profile."""
    freedom = len(best.hours) - len(best.constants)
    return best.misfit * (1 + student_t(freedom) ** 2 / freedom)


def profile(points: Sequence[Point], best: Point) -> pd.DataFrame:
    """The best point with each value of each constant."""
    rows = []
    for name in best.constants:
        for value in sorted({point.constants[name] for point in points}):
            point = next(point for point in points if point.constants[name] == value)
            apart = "excluded" if point.misfit > region(best) else "not excluded"
            verdict = "best" if value == best.constants[name] else apart
            rows.append({"constant": name, "value": value, **point.row, "verdict": verdict})
    return pd.DataFrame(rows)


def report(points: Sequence[Point], labels: Sequence[str]) -> tuple[list[str], pd.DataFrame, pd.DataFrame]:
    """(lines to print, every point, the profile)."""
    best = next((point for point in points if point.is_exact), points[0])
    by_value = profile(points, best)
    bars = [
        (label, f"{paper:g}", f"{'> ' if bound else ''}{hours:.3g}")
        for label, paper, hours, bound in zip(labels, best.paper, best.hours, best.at_least, strict=True)
    ]
    alike = sum(point.misfit <= region(best) for point in points if point is not best)
    constants = ", ".join(f"{name} = {value}" for name, value in best.constants.items())
    errors = by_value["is"].replace("exact", "") + by_value["error"].map(" {:.3f}".format)
    cells = by_value.assign(error=errors.str.strip())[["constant", "value", "error", "verdict"]]
    lines = [
        *aligned(("bar", "paper h", "best h"), bars),
        f"best of {len(points)} points: error {best} with {constants}",
        f"{alike} other points fit as well, by the 95 % region of one constant",
        *aligned(list(cells), cells.to_numpy().tolist()),
    ]
    rows = [
        {**point.constants, **point.row}
        | {f"{label} h": hours for label, hours in zip(labels, point.hours, strict=True)}
        for point in points
    ]
    return lines, pd.DataFrame(rows), by_value


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("table", metavar="TABLE.csv")
@click.option("--bars", default="policy", show_default=True, metavar="AXIS", help="The axis of the bars.")
@click.option(
    "--hours",
    metavar="FILE.csv",
    help="The paper's hours: columns label and hours (default: those of Fig. 9).",
)
def main(table: str, bars: str, hours: str | None) -> None:
    """Fit the constants, print the fit, and write it beside the table."""
    paper_hours = PAPER_HOURS
    if hours:
        rows = read_table(hours)
        rows.require("label", "hours")
        paper_hours = dict(zip(rows.columns["label"], rows.numbers("hours").tolist(), strict=True))
    lines, points, by_value = report(read_points(table, bars, paper_hours), list(paper_hours))
    for name, frame in (("points.csv", points), ("profile.csv", by_value)):
        replace_file(Path(table).with_name(name), csv_bytes(frame))
    for line in lines:
        click.echo(line)


if __name__ == "__main__":
    run_script(main)
