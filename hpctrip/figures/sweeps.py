"""Figures of sweeps over the size k of fixed cohorts: time-to-accuracy, speed-up, and gain of accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import Estimate, Times, compare, mean_interval
from hpctrip.base.text import aligned
from hpctrip.figures import over_time
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SWEPT = click.Option(["--policy"], default="static", show_default=True, help="The policy that was swept.")
EARLY = 20
"""Number of rounds whose mean gain is printed apart from that of later ones."""


@figure(RUNS, SWEPT, TARGET)
def sweep(runs: Sequence[Run], policy: str = "static", target: float | None = None) -> Drawing:
    """Time-to-accuracy against the static k.

    Points are means over seeds, above three seeds with 95 % confidence intervals (Student t; no time is below 0); dots
    are single seeds. Where a seed did not reach the target, the point is open and a lower bound: the time that was
    spent. Such a k is never the best one (Eq. 9). The k with the lowest mean is marked together with all k that are not
    significantly different from it: those whose ratio to it, paired by seed, has an interval that holds 1. Where that
    are all of them, none is marked.
    """
    swept, lines, caption = fixed_cohorts(runs, policy)
    target = reading.common_target(swept, target)
    points = {k: group.times(target) for k, group in of_each_k(swept).items()}
    low = lowest(points)

    lines += aligned(
        ("k", *grouping.TIMES_HEAD), [(str(k), *grouping.cells_of(t)) for k, t in points.items()]
    )
    best = best_in_words(low, points)
    lines.append(f"best k (Eq. 9): {best}")

    picture = style.figure(2.8)
    axes = picture.subplots()
    draw(axes, points)
    mark(axes, low, points)
    axes.set_ylabel(f"Simulated hours\nto {reading.percent(target)} accuracy")
    seeds = style.counts([t.num_seeds for t in points.values()])
    subject = f"{policy}, {seeds} a k"
    style.finish(picture, f"{subject}; {caption}\nbest k: {best}")
    table = pd.DataFrame(
        [{"k": k} | t.row() | {"not_different_from_lowest": k in low} for k, t in points.items()]
    )
    return Drawing(picture, table, lines)


@figure(RUNS, SWEPT, TARGET)
def equal_power(runs: Sequence[Run], policy: str = "static", target: float | None = None) -> Drawing:
    """Accuracy, time and speed-up of fixed cohorts of k sites.

    Made for runs at equal power and without a WAN. a: accuracy against simulated time, the mean over seeds in its band.
    b: time-to-accuracy against k. c: how many times sooner than with the smallest k, the geometric mean over the seeds
    that both have; the dotted line would be a speed-up as large as the growth of k. All intervals are 95 % (Student t;
    of speed-ups over logarithms); of up to three seeds their dots are drawn instead. A k that did not reach the target
    with every seed has no time and no speed-up; the printed table says what it reached. Where there are more than seven
    curves, those of the largest k and of about half, a quarter, ... are drawn.
    """
    swept, lines, caption = fixed_cohorts(runs, policy)
    target = reading.common_target(swept, target)
    groups = of_each_k(swept, least=2)
    points = {k: group.times(target) for k, group in groups.items()}
    first = next(iter(groups))

    rows, table, ratios = [], [], {}
    for k, t in points.items():
        gain = compare(points[first], t)
        exact = gain.n and not gain.bound and t.reached
        ratios |= {k: gain} if exact else {}
        rows.append((str(k), *grouping.cells_of(t), gain.text() if exact else "-"))
        ends = (gain.value, gain.low, gain.high) if exact else (np.nan, np.nan, np.nan)
        numbers = dict(zip(("speed_up", "speed_up_low", "speed_up_high"), ends, strict=True))
        table.append({"k": k} | t.row() | numbers)
    lines += aligned(("k", *grouping.TIMES_HEAD, f"speed-up over k = {first}"), rows)

    picture = style.figure(2.9, style.PAGE_INCHES)
    accuracy, hours, speed = picture.subplots(1, 3)
    for i, k in enumerate(style.sizes_to_draw(list(groups))):
        mean = over_time.mean_of(groups[k])
        name = f"k = {k}" if len(mean) else f"k = {k}: no time when all seeds run"
        over_time.draw_mean(accuracy, style.line(i), name, mean, points[k].num_seeds)
    over_time.draw_target(accuracy, target)
    accuracy.set(xlabel="Simulated time (hours)", ylabel="Held-out accuracy (%)")
    accuracy.set_xlim(left=0)
    accuracy.set_ylim(bottom=0)
    draw_means(hours, means_of(points))
    hours.set_ylabel(f"Simulated hours to {reading.percent(target)}")
    draw_means(speed, ratios)
    speed.set_ylim(0, 1.2 * max(1.0, speed.dataLim.y1))
    even = {"color": style.GREY, "linewidth": 1, "label": f"k / {first}"}
    speed.plot([first, max(groups)], [1, max(groups) / first], "--", scaley=False, **even)
    speed.set_ylabel(f"Speed-up over k = {first}")
    if not points[first].reached:
        style.say_empty(speed, f"k = {first} did not reach the target with every seed")
    if not means_of(points):
        style.say_empty(hours, "no k reached the target with every seed")
        hours.sharex(speed)
    for axes, letter in zip((accuracy, hours, speed), "abc", strict=True):
        axes.set_title(letter, color="black", fontweight="bold")
    numbers = [t.num_seeds for t in points.values()]
    bands = "; bars and bands: 95 % intervals of means over seeds" if style.has_whiskers(max(numbers)) else ""
    style.finish(picture, f"{style.counts(numbers)} a k; {caption}{bands}")
    return Drawing(picture, pd.DataFrame(table), lines)


@figure(RUNS, SWEPT)
def gain(runs: Sequence[Run], policy: str = "static") -> Drawing:
    """Accuracy that larger cohorts gain, round by round.

    Lines are means over seeds of the accuracy of k sites less that of the smallest k with the same seed, round by
    round; bands are 95 % confidence intervals (Student t), of up to three seeds thin lines are the seeds. A line ends
    with the first of its seeds that ended: those that are left are not the same draw. Rounds without an evaluation of
    both are left out. Where there are more than seven lines, those of the largest k and of about half, a quarter, ...
    of it are drawn; the numbers are of all.
    """
    swept, lines, caption = fixed_cohorts(runs, policy)
    (first, base), *others = of_each_k(swept, least=2).items()
    shown = style.sizes_to_draw([k for k, _ in others])

    picture = style.figure(2.8)
    axes = picture.subplots()
    axes.axhline(0, color="black", linewidth=0.8)
    rows, tables = [], []
    for k, group in others:
        gains = gain_over(base.runs, group.runs)
        n, points = gains.attrs["n"], gains["gain_points"]
        if k in shown:
            look = style.line(shown.index(k))
            if style.has_whiskers(n):
                style.band(axes, gains.index, gains["low"], gains["high"], look)
            elif n > 1:
                thin = {"color": look["color"], "linewidth": 0.5, "alpha": 0.6}
                for line in axes.plot(gains.index, gains.attrs["by_seed"], **thin):
                    style.mark_point(line)
            name = style.counted_name(f"k = {k}", n, 30)
            style.mark_point(axes.plot(gains.index, points, label=name, **look)[0])
        means = points.loc[:EARLY].mean(), points.loc[EARLY + 1 :].mean()
        cells = [f"{mean:+.3g}" if np.isfinite(mean) else "-" for mean in means]
        rows.append((str(k), str(n), str(len(gains)), *cells))
        tables.append(gains.reset_index().assign(k=k, n=n))
    axes.set(xlabel="Round", ylabel=f"Accuracy over\nthat of k = {first}\n(percentage points)")
    style.whole_numbers(axes, "x")
    style.grid(axes, "y")
    numbers = [int(n) for _, n, *_ in rows]
    note = "; bands: 95 % intervals of means over seeds" if style.has_whiskers(max(numbers)) else ""
    style.finish(picture, f"{style.counts(numbers)}; {caption}{note}")
    head = ("k", "n", "rounds", f"mean gain, rounds 1 to {EARLY}", "mean gain later")
    return Drawing(picture, pd.concat(tables, ignore_index=True), [*lines, *aligned(head, rows)])


def fixed_cohorts(runs: Sequence[Run], policy: str) -> tuple[list[Run], list[str], str]:
    """The runs of `policy` with one cohort size throughout, lines that name the others, and the caption of
    `grouping.compared`."""
    swept, left_out = [], []
    for run in runs:
        if run.meta["policy"] != policy:
            left_out.append(f"left out: {run.path}, policy {run.meta['policy']}")
        elif run.rounds["num_sites"].nunique() > 1:
            left_out.append(f"left out: {run.path}, its cohort size changes")
        else:
            swept.append(run)
    if not swept:
        problem = f"neither this nor another run is of policy {policy} with a fixed k"
        raise InputError(str(runs[0].path), problem, "name its --policy")
    return swept, left_out, grouping.compared(swept)[1]


def of_each_k(runs: Sequence[Run], least: int = 1) -> dict[int, Group]:
    """{k: its runs}, k ascending. Raises InputError where the runs of one k differ in more than their seed, or there
    are fewer than `least` k."""
    by_k: dict[int, list[Run]] = defaultdict(list)
    for run in runs:
        by_k[int(run.rounds["num_sites"].iloc[0])].append(run)
    groups = {}
    for k in sorted(by_k):
        groups[k], *others = grouping.grouped(by_k[k])
        if others:
            labels = " and ".join(group.label for group in (groups[k], *others))
            raise InputError(str(by_k[k][-1].path), f"k = {k} is both {labels}", "give one sweep at a time")
    if len(groups) < least:
        raise InputError("the runs", f"are all of k = {next(iter(groups))}", "give those of several k")
    return groups


def lowest(points: dict[int, Times]) -> list[int]:
    """The k with the lowest mean among those that reached the target with every seed, and after it all that are not
    slower, seed by seed. One seed in common decides nothing."""
    reached = {k: t for k, t in points.items() if t.reached}
    if not reached:
        return []
    best = min(reached, key=lambda k: reached[k].mean.value)
    tied = (k for k, t in reached.items() if k != best and compare(t, reached[best]).verdict != "slower")
    return [best, *tied]


def best_in_words(low: list[int], points: dict[int, Times]) -> str:
    """The k with the lowest mean, and those that are not significantly different from it."""
    if not low:
        return "none, no k reached the target with every seed"
    best, *tied = low
    lowest_mean = f"{best} has the lowest mean, {points[best]} h"
    if not tied:
        return lowest_mean
    if points[best].num_seeds == 1:
        return f"{lowest_mean}; one seed has no interval, so nothing says that it is best"
    all_tie = len(low) == sum(t.reached for t in points.values())
    others = " (all others that reached the target)" if all_tie else ""
    return f"{lowest_mean}; not significantly different from k = {', '.join(map(str, tied))}{others}"


def gain_over(base: Sequence[Run], runs: Sequence[Run]) -> pd.DataFrame:
    """Percentage points over the same seed of `base`, by round: gain_points, low, high; attributes `n`, the number of
    seeds that both have, and `by_seed`, their gains [rounds][n]. The bounds are NaN for one seed. Raises InputError
    where no seed is common."""
    both = grouping.pairs(runs, base)
    if not both:
        problem = "has no seed in common with the smallest k"
        raise InputError(str(runs[0].path), problem, "give the same seeds")
    gains = [
        100 * (run.rounds.set_index("round")["accuracy"] - other.rounds.set_index("round")["accuracy"])
        for run, other in both
    ]
    points = pd.concat(gains, axis=1, join="inner").dropna()
    mean, half = mean_interval(points.to_numpy().T)
    table = pd.DataFrame({"gain_points": mean, "low": mean - half, "high": mean + half}, index=points.index)
    table.attrs |= {"n": len(both), "by_seed": points.to_numpy().tolist()}
    return table


def draw(axes: Axes, points: dict[int, Times]) -> None:
    """The sweep with its seeds and intervals, and the bounds of what did not get there."""
    means = means_of(points)
    missed = {k: t for k, t in points.items() if not t.reached}
    most = max((mean.n for mean in means.values()), default=1)
    axes.margins(y=0.15)
    if missed:
        look = {"color": style.VERMILLION, "markersize": 6, "markerfacecolor": "white"}
        name = "not reached by every seed: time spent, best accuracy"
        axes.plot(list(missed), [t.mean.value for t in missed.values()], "^", label=name, **look)
    for k in list(missed)[style.every_nth(len(missed), 6)]:  # the table has all
        place = {"xytext": (0, 6), "textcoords": "offset points", "ha": "center", "fontsize": 7}
        text = reading.percent(missed[k].best_accuracy)
        axes.annotate(text, (k, missed[k].mean.value), color=style.VERMILLION, **place)
    name = "mean over seeds, 95 % interval" if style.has_whiskers(most) else "mean over seeds"
    draw_means(axes, means, name if most > 1 else "one seed", all_seeds=True)


def mark(axes: Axes, low: list[int], points: dict[int, Times]) -> None:
    """Draw a line at the lowest mean and a ring around each k that is not significantly different from it, where
    these are not all."""
    best, *tied = low or [None]
    if best is None or (tied and len(low) == sum(t.reached for t in points.values())):
        return
    axes.axvline(best, color=style.GREY, linestyle="--", linewidth=0.8, zorder=0)
    if tied:
        ring = {"markersize": 9, "markerfacecolor": "none", "color": style.VERMILLION}
        axes.plot(
            low, [points[k].mean.value for k in low], "o", label="not significantly above the lowest", **ring
        )


def means_of(points: dict[int, Times]) -> dict[int, Estimate]:
    """Mean hours of the k that reached the target with every seed."""
    return {k: t.mean for k, t in points.items() if t.reached}


def draw_means(
    axes: Axes, means: dict[int, Estimate], name: str | None = None, all_seeds: bool = False
) -> None:
    """Means against k with whiskers, and the dots of single seeds where there are none, or everywhere. Call it last:
    the axis then begins at 0 and ends above all that was drawn."""
    from matplotlib.transforms import ScaledTranslation

    has_whiskers = {k: style.has_whiskers(mean.n) for k, mean in means.items()}
    bars = [m.bars if has_whiskers[k] else np.zeros((2, 1)) for k, m in means.items()]
    look = {"color": style.BLUE, "markersize": 4, "elinewidth": 0.9, "capsize": 3}
    if means:
        yerr = np.hstack(bars) if any(has_whiskers.values()) else None
        axes.errorbar(list(means), [m.value for m in means.values()], yerr, fmt="-o", label=name, **look)
    dotted = [(k, m) for k, m in means.items() if m.n > 1 and (all_seeds or not has_whiskers[k])]
    if dotted:
        beside = axes.transData + ScaledTranslation(4 / 72, 0, axes.figure.dpi_scale_trans)
        look = {"color": "black", "markersize": 2.5, "zorder": 3, "transform": beside}
        seeds = [(k, value) for k, mean in dotted for value in mean.by_seed]
        axes.plot(*zip(*seeds, strict=True), ".", label="single seeds", **look)
        axes.update_datalim(seeds)  # which a line that is moved aside does not do
    axes.set_xlabel("Sites in the cohort, k")
    axes.set_ylim(bottom=0)
    axes.margins(x=0.12)  # a percentage beside a point stays inside
    style.whole_numbers(axes, "x")
    style.grid(axes, "y")
