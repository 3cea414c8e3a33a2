"""Accuracy against simulated time, bands over seeds.

Thin lines are single seeds, straight from one evaluation to the next. Where all n seeds of a configuration are running,
the thick line is their mean and the band its 95 % confidence interval (Student t); after the first of them has ended
there is no mean, because those that are left are not the same draw. Up to four configurations share a panel, more get
one each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.base.stats import mean_interval
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run


@dataclass(frozen=True)
class Mean:
    """The mean accuracy in % over n seeds at T times, [T] each; the bounds are NaN for one seed."""

    hours: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@figure(RUNS, TARGET)
def plot(runs: Sequence[Run], target: float | None = None) -> Drawing:
    """The accuracy of every run, and the mean of every configuration."""
    groups = grouping.grouped(runs, style.MOST_PANELS)
    unlike = grouping.warn_of_differences(groups)
    goals = {target} if target else {float(run.meta["target_accuracy"]) for run in runs}
    goal = goals.pop() if len(goals) == 1 else np.nan  # several goals are no common line
    picture, places = style.places_of(groups)
    others = style.draw_behind(places, [evaluated(run) for run in runs])
    rows, tables = [], []
    for group, place in zip(groups, places, strict=True):
        mean = mean_of(group)
        draw(place, group, mean)
        rows.append(line_of(group, mean, goal))
        tables += table_of(group, mean)
    for axes in dict.fromkeys(place.axes for place in places):
        if np.isfinite(goal):
            draw_target(axes, goal, has_name=axes is places[0].axes)
    style.label_panels(picture, places, "Simulated time (hours)", "Held-out accuracy (%)")
    bands = "; thin: single seeds, thick: their mean, bands: its 95 % interval"
    many = bands if len(runs) > len(groups) else ""
    style.heading(picture, reading.provenance(runs, unlike) + many + others)
    style.legend_below(picture)
    head = ("configuration", "n", "all run until h", "mean accuracy there", "best", "hours to target")
    return Drawing(picture, pd.concat(tables, ignore_index=True), aligned(head, rows))


def evaluated(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """(hours, accuracy in %) of a run's evaluations."""
    rounds = run.rounds.dropna(subset="accuracy")
    return rounds["clock_s"].to_numpy() / HOUR_S, 100 * rounds["accuracy"].to_numpy()


def mean_of(group: Group) -> Mean:
    """The mean wherever every seed has been evaluated and none has ended; empty where there is no such time."""
    curves = [evaluated(run) for run in group.runs]
    if any(len(hours) == 0 for hours, _ in curves):
        return Mean(*np.empty((4, 0)))
    first, last = max(hours[0] for hours, _ in curves), min(hours[-1] for hours, _ in curves)
    times = np.unique(np.concatenate([hours for hours, _ in curves]))
    times = times[(times >= first) & (times <= last)]
    at = np.array([np.interp(times, hours, values) for hours, values in curves])
    mean, half = mean_interval(at)
    return Mean(times, mean, np.maximum(mean - half, 0), np.minimum(mean + half, 100))


def draw(place: style.Place, group: Group, mean: Mean) -> None:
    """One configuration: its seeds thin, their mean thick in its band. One seed is its own mean."""
    axes, look, name = place
    if len(group.runs) > 1:
        for run in group.runs:
            axes.plot(*evaluated(run), color=look["color"], linewidth=0.5, alpha=0.6)
        style.band(axes, mean.hours, mean.low, mean.high, look)
    (line,) = axes.plot(mean.hours, mean.mean, label=name, **look)
    if len(mean.hours) == 1:
        line.set(marker="o", markersize=3, clip_on=False)  # a line of one point would not be seen


def draw_target(axes: Axes, target: float, has_name: bool = True) -> None:
    """A line at the target accuracy."""
    name = f"target {reading.percent(target)}" if has_name else None
    axes.axhline(100 * target, color=style.GREY, linestyle=":", linewidth=1, label=name)


def line_of(group: Group, mean: Mean, goal: float) -> tuple[str, ...]:
    """One line of the printed table."""
    there = "none"
    if len(mean.hours):
        there = f"{mean.mean[-1]:.3g} %"
        if np.isfinite(mean.low[-1]):
            there += f" ({mean.low[-1]:.3g} % to {mean.high[-1]:.3g} %)"
    times = group.times(goal)
    until = f"{mean.hours[-1]:.3g}" if len(mean.hours) else "-"
    hours = str(times) if np.isfinite(goal) else "-"
    return group.label, str(times.num_seeds), until, there, reading.percent(times.best_accuracy), hours


def table_of(group: Group, mean: Mean) -> list[pd.DataFrame]:
    """Every point: of each seed, and of the mean, whose seed is empty."""
    points = [(str(run.meta["seed"]), *evaluated(run), np.nan, np.nan, 1) for run in group.runs]
    if len(group.runs) > 1:
        points.append(("", mean.hours, mean.mean, mean.low, mean.high, len(group.runs)))
    columns = ("seed", "hours", "accuracy_percent", "low", "high", "n")
    return [pd.DataFrame({"label": group.label} | dict(zip(columns, row, strict=True))) for row in points]
