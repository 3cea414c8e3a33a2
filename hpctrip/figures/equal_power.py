"""Accuracy, time and speed-up of fixed cohorts of k sites.

Made for runs at equal power and without a WAN. a: accuracy against simulated time, the mean over seeds in its band. b:
time-to-accuracy against k. c: how many times sooner than with the smallest k, the geometric mean over the seeds that
both have; the dotted line would be a speed-up as large as the growth of k. All intervals are 95 % (Student t; of
speed-ups over logarithms). A k that did not reach the target with every seed has no time and no speed-up; the printed
table says what it reached.
Where there are more curves than can be told apart, those of the largest k and of about half, a quarter, ... are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.base.errors import InputError
from hpctrip.base.stats import compare
from hpctrip.figures import curves
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.figures.sweep import SWEPT, fixed_cohorts, of_each_k
from hpctrip.record.reader import Run

LEAST = 2
"""A sweep has at least so many k."""


@figure(RUNS, SWEPT, TARGET)
def plot(runs: Sequence[Run], policy: str = "static", target: float | None = None) -> Drawing:
    """A sweep over k in three panels."""
    swept, lines = fixed_cohorts(runs, policy)
    target = reading.common_target(swept, target)
    unlike = grouping.warn_of_differences(grouping.grouped(swept))
    groups = of_each_k(swept)
    if len(groups) < LEAST:
        raise InputError("the runs", f"are all of k = {next(iter(groups))}", "give those of several k")
    points = {k: group.times(target) for k, group in groups.items()}
    first = next(iter(groups))

    rows, table = [], []
    for k, t in points.items():
        gain = compare(points[first], t)
        exact = gain.n and not gain.bound and t.reached
        counts = str(t.num_seeds), str(t.num_reached), f"{t.best_accuracy:.4f}"
        rows.append((str(k), str(t), *counts, gain.text() if exact else "-"))
        ends = (gain.value, gain.low, gain.high) if exact else (np.nan, np.nan, np.nan)
        numbers = dict(zip(("speed_up", "speed_up_low", "speed_up_high"), ends, strict=True))
        table.append({"k": k} | t.row() | numbers)
    head = ("k", "TTA h (95 % interval)", "seeds", "reached", "best accuracy", f"speed-up over k = {first}")
    lines += aligned(head, rows)

    picture = style.figure(2.9, style.PAGE_INCHES)
    accuracy, hours, speed = picture.subplots(1, 3)
    draw_curves(accuracy, groups, target)
    reached = {k: t for k, t in points.items() if t.reached}
    spread = [np.nan_to_num([t.hours - t.low, t.high - t.hours]) for t in reached.values()]
    draw_points(hours, list(reached), [t.hours for t in reached.values()], spread)
    hours.set_ylabel(f"Simulated hours to {reading.percent(target)}")
    shown = pd.DataFrame(table).set_index("k").dropna(subset="speed_up")
    ends = [shown["speed_up"] - shown["speed_up_low"], shown["speed_up_high"] - shown["speed_up"]]
    draw_points(speed, list(shown.index), list(shown["speed_up"]), list(np.nan_to_num(ends).T))
    even = {"color": style.GREY, "linewidth": 1, "label": f"k / {first}"}
    speed.plot([first, max(groups)], [1, max(groups) / first], "--", **even)
    speed.set_ylim(0, 1.25 * max([1.0, *shown["speed_up_high"].fillna(shown["speed_up"])]))
    speed.set_ylabel(f"Speed-up over k = {first}")
    for axes, letter in zip((accuracy, hours, speed), "abc", strict=True):
        axes.set_title(letter, color="black", fontweight="bold")
    style.legend_below(picture)
    bands = "; bars and bands: 95 % intervals of means over seeds" if len(swept) > len(groups) else ""
    seeds = style.seeds([t.num_seeds for t in points.values()])
    style.heading(picture, f"{seeds} a k; {reading.provenance(swept, unlike)}{bands}")
    return Drawing(picture, pd.DataFrame(table), lines)


def draw_curves(axes: Axes, groups: dict[int, Group], target: float) -> None:
    """The mean accuracy of as many k as can be told apart."""
    for i, k in enumerate(style.told_apart(list(groups))):
        mean, look = curves.mean_of(groups[k]), style.line(i)
        axes.fill_between(mean.hours, mean.low, mean.high, color=look["color"], alpha=0.2, linewidth=0)
        axes.plot(mean.hours, mean.mean, label=f"k = {k}", **look)
    goal = f"target {reading.percent(target)}"
    axes.axhline(100 * target, color=style.GREY, linestyle=":", linewidth=1, label=goal)
    axes.set(xlabel="Simulated time (hours)", ylabel="Held-out accuracy (%)")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def draw_points(axes: Axes, k: list[int], values: list[float], reach: list[np.ndarray]) -> None:
    """Means with their intervals against k."""
    look = {"color": style.BLUE, "markersize": 4, "elinewidth": 0.9, "capsize": 3}
    axes.errorbar(k, values, yerr=np.array(reach).reshape(-1, 2).T, fmt="-o", **look)
    axes.set_xlabel("Sites in the cohort, k")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08)
    style.whole_numbers(axes, "x")
    style.grid(axes, "y")
