"""Time-to-accuracy against the static k.

Points are means over seeds with 95 % confidence intervals (Student t; no time is below 0), dots single seeds. Where a
seed did not reach the target, the point is open and a lower bound: the time that was spent. Such a k is never the best
one (Eq. 9). The k with the lowest mean is marked together with all k that are not told apart from it: those whose ratio
to it, paired by seed, has an interval that holds 1. Where that are all of them, none is marked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Times, compare
from hpctrip.base.text import printable
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

SWEPT = click.Option(["--policy"], default="static", show_default=True, help="The policy that was swept.")


@figure(RUNS, SWEPT, TARGET)
def plot(runs: Sequence[Run], policy: str = "static", target: float | None = None) -> Drawing:
    """A sweep over k: where its minimum is, how sure that is, and whether it is convex."""
    swept, lines = fixed_cohorts(runs, policy)
    target = reading.common_target(swept, target)
    unlike = grouping.warn_of_differences(grouping.grouped(swept))
    points = sweep(swept, target)
    low = lowest(points)

    rows = [
        (str(k), str(t), str(t.num_seeds), str(t.num_reached), f"{t.best_accuracy:.4f}")
        for k, t in points.items()
    ]
    lines += aligned(("k", "TTA h (95 % interval)", "seeds", "reached", "best accuracy"), rows)
    lines.append(f"best k (Eq. 9): {best_in_words(low, points, target)}")
    lines.append(f"convex: {convexity({k: point for k, point in points.items() if point.reached})}")

    picture = style.figure(2.8)
    axes = picture.subplots()
    draw(axes, points)
    marked = mark(axes, low, points)
    axes.set_ylabel(f"Simulated hours\nto {reading.percent(target)} accuracy")
    seeds = style.seeds([t.num_seeds for t in points.values()])
    style.heading(
        picture,
        f"{printable(policy, 40)}, {seeds} a k; {reading.provenance(swept, unlike)}\n{marked}",
    )
    style.legend_below(picture)
    table = pd.DataFrame([{"k": k} | t.row() | {"not_told_from_lowest": k in low} for k, t in points.items()])
    return Drawing(picture, table, lines)


def lowest(points: dict[int, Times]) -> list[int]:
    """The k with the lowest mean among those that reached the target with every seed, and after it all that are not
    slower, seed by seed. One seed in common tells nothing apart."""
    reached = {k: t for k, t in points.items() if t.reached}
    if not reached:
        return []
    best = min(reached, key=lambda k: reached[k].hours)
    tied = (k for k, t in reached.items() if k != best and compare(t, reached[best]).verdict != "slower")
    return [best, *tied]


def best_in_words(low: list[int], points: dict[int, Times], target: float) -> str:
    """The lowest mean, and what is not told apart from it."""
    if not low:
        return f"none, no k reached {reading.percent(target)} with every seed"
    best, *tied = low
    lowest_mean = f"{best} has the lowest mean, {points[best]} h to {reading.percent(target)}"
    if not tied:
        return lowest_mean
    if not points[best].has_interval:
        return f"{lowest_mean}; one seed has no interval, so nothing says that it is best"
    of_all = ", that is all" if len(low) == sum(t.reached for t in points.values()) else ""
    return f"{lowest_mean}; not told apart from k = {', '.join(map(str, tied))}{of_all}"


def draw(axes: Axes, points: dict[int, Times]) -> None:
    """The sweep with its seeds and intervals, and the bounds of what did not get there."""
    reached = {k: t for k, t in points.items() if t.reached}
    missed = {k: t for k, t in points.items() if not t.reached}
    hours, low, high = (
        np.array([getattr(t, of) for t in reached.values()]) for of in ("hours", "low", "high")
    )
    look = {"color": style.BLUE, "markersize": 4, "elinewidth": 0.9, "capsize": 3}
    if np.isfinite(low).any():
        reach = np.nan_to_num([hours - low, high - hours])
        axes.errorbar(
            list(reached), hours, yerr=reach, fmt="-o", label="mean over seeds, 95 % interval", **look
        )
    elif reached:
        axes.plot(list(reached), hours, "-o", color=style.BLUE, markersize=4, label="one seed, no interval")
    seeds = [(k, h) for k, t in reached.items() if t.num_seeds > 1 for h in t.spent_h]
    if seeds:
        axes.plot(
            *zip(*seeds, strict=True), ".", color="black", markersize=2.5, label="single seeds", zorder=3
        )
    if missed:
        bounds = [t.hours for t in missed.values()]
        axes.plot(
            list(missed),
            bounds,
            "^",
            markersize=6,
            markerfacecolor="white",
            color=style.VERMILLION,
            label="not reached by every seed: time spent, best accuracy",
        )
    for k, t in missed.items():
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 7}
        axes.annotate(reading.percent(t.best_accuracy), (k, t.hours), color=style.VERMILLION, **place)
    axes.set_xlabel("Sites in the cohort, k")
    axes.margins(x=0.08, y=0.15)
    axes.set_ylim(bottom=0)
    style.whole_numbers(axes, "x")
    style.grid(axes, "y")


def mark(axes: Axes, low: list[int], points: dict[int, Times]) -> str:
    """Draw a line at the lowest mean and a ring around each k that is not told apart from it, where these are not all.
    Returns the same in words."""
    if not low:
        return "no k reached the target with every seed"
    best, *tied = low
    if tied and len(low) == sum(t.reached for t in points.values()):
        return (
            f"no best k: {'no two are told apart' if points[best].has_interval else 'one seed, no interval'}"
        )
    axes.axvline(best, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    if not tied:
        return f"lowest at k = {best}"
    ring = {"markersize": 9, "markerfacecolor": "none", "color": style.VERMILLION}
    axes.plot(low, [points[k].hours for k in low], "o", label="not told apart from the lowest", **ring)
    return f"lowest at k = {best}, not told apart from {', '.join(map(str, tied))}"


def fixed_cohorts(runs: Sequence[Run], policy: str) -> tuple[list[Run], list[str]]:
    """The runs of `policy` with one cohort size throughout, and lines that name the others."""
    swept, left_out = [], []
    for run in runs:
        if run.meta["policy"] != policy:
            left_out.append(f"left out: {run.path}, policy {printable(run.meta['policy'], 80)}")
        elif run.rounds["num_sites"].nunique() > 1:
            left_out.append(f"left out: {run.path}, its cohort size changes")
        else:
            swept.append(run)
    if not swept:
        raise InputError(
            str(runs[0].path),
            f"neither this nor another run is of policy {printable(policy, 80)} with a fixed k",
            "name its --policy",
        )
    return swept, left_out


def sweep(runs: Sequence[Run], target: float) -> dict[int, Times]:
    """{k: time-to-accuracy over seeds}, k ascending."""
    return {k: group.times(target) for k, group in of_each_k(runs).items()}


def of_each_k(runs: Sequence[Run]) -> dict[int, Group]:
    """{k: its runs}, k ascending. Raises InputError where the runs of one k differ in more than their seed."""
    by_k: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_k[int(run.rounds["num_sites"].iloc[0])].append(run)
    groups = {}
    for k in sorted(by_k):
        groups[k], *others = grouping.grouped(by_k[k])
        if others:
            labels = " and ".join(group.label for group in (groups[k], *others))
            raise InputError(str(by_k[k][-1].path), f"k = {k} is both {labels}", "give one sweep at a time")
    return groups


def convexity(points: dict[int, Times]) -> str:
    """Whether the curve of means is convex, by its second (divided) differences."""
    k = np.array(list(points))
    if len(k) < 3:
        return f"not decidable from {len(k)} k that reached the target, three are needed"
    slopes = np.diff([t.hours for t in points.values()]) / np.diff(k)
    bends_down = k[1:-1][np.diff(slopes) < 0]
    if len(bends_down):
        return f"no, the second difference is negative at k = {', '.join(map(str, bends_down))}"
    return f"yes, no second difference of these {len(k)} means is negative"
