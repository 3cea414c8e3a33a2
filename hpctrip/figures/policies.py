"""Time-to-accuracy by policy.

Runs that differ in more than their seed are bars of their own, labelled with what differs. Where the bars are not alike
in what is no part of their policy (data, timing, network, ...), a warning and the picture say in what.

Bars are means over n seeds with 95 % confidence intervals (Student t; no time is below 0), dots single seeds. Where a
seed did not reach the target, nobody knows how long the bar is: it is hatched, without an end, and stands below all
that did; a mark shows the mean time that was spent. The ratio to the reference is the geometric mean over the seeds
that both have, as in the tables of studies: a bound where one of the two did not reach the target with some seed.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Estimate, Times, compare, in_order
from hpctrip.base.text import printable
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

Bar = tuple[Group, Times]
MOST = 100
"""Number of bars that can still be looked at."""
SIGNS = {"": "", "at least": "> ", "at most": "< "}
"""How a bound is printed."""


@figure(
    RUNS,
    click.Option(
        ["--reference"], metavar="LABEL", help="Bar to compare with (default: the fastest powertrip)."
    ),
    TARGET,
)
def plot(runs: Sequence[Run], reference: str | None = None, target: float | None = None) -> Drawing:
    """The policies of the runs, fastest first."""
    target = reading.common_target(runs, target)
    groups = grouping.grouped(runs, MOST)
    unlike = grouping.warn_of_differences(groups)
    bars = bars_of(groups, target)
    bar = reference_bar(bars, reference)

    rows = [
        (g.label, str(t), str(t.num_seeds), str(t.num_reached), f"{t.best_accuracy:.4f}", *compared(t, bar))
        for g, t in bars
    ]
    head = (
        "policy",
        "TTA h (95 % interval)",
        "seeds",
        "reached",
        "best accuracy",
        "ratio",
        "reference takes",
    )
    lines = aligned(head, rows)
    if bar:
        lines.append(f"ratio: hours over those of {bar[0].label}, the reference")
    order = in_order((group.label, t) for group, t in bars if t.reached)
    lines.append(f"order at {reading.percent(target)}: {order or 'none, nothing reached it with every seed'}")

    picture, axes = style.rows([style.counted_name(g.label, t.num_seeds, 22) for g, t in bars], 1.15)
    draw(axes, bars)
    axes.set_xlabel(f"Simulated hours to {reading.percent(target)} accuracy")
    style.heading(picture, reading.provenance(runs, unlike))
    style.legend_below(picture, key(bars))
    table = pd.DataFrame([{"label": g.label, "policy": g.policy} | t.row() for g, t in bars])
    return Drawing(picture, table, lines)


def bars_of(groups: Sequence[Group], target: float) -> list[Bar]:
    """The groups with their times, fastest first, ties by label."""
    bars = [(group, group.times(target)) for group in groups]
    return sorted(bars, key=lambda bar: (*bar[1].place, bar[0].label))


def draw(axes: Axes, bars: list[Bar]) -> None:
    """One bar for each group, from top to bottom."""
    ends = [max([*t.spent_h, np.nan_to_num(t.high)]) for _, t in bars]
    # room for what is written after the longest bar
    right = max(end * (1.25 if t.reached else 2) for end, (_, t) in zip(ends, bars, strict=True))
    for y, (group, t) in enumerate(bars):
        if t.reached:
            colour = style.BLUE if group.policy == "powertrip" else style.SKY
            axes.barh(y, t.hours, height=0.66, color=colour)
            text = f"{t.hours:.3g}"
        else:
            axes.barh(
                y, right, height=0.66, facecolor="white", edgecolor=style.FAINT, hatch="////", linewidth=0
            )
            axes.plot([t.hours] * 2, [y - 0.33, y + 0.33], color="black", linewidth=1)
            some = f"{t.num_reached}/{t.num_seeds} reached" if t.num_reached else ""
            text = f"> {t.hours:.3g}, {some or f'best {reading.percent(t.best_accuracy)}'}"
        if t.has_interval:
            reach = [[t.hours - t.low], [t.high - t.hours]]
            axes.errorbar(t.hours, y, xerr=reach, fmt="none", color="black", capsize=2.5, elinewidth=0.9)
        if t.num_seeds > 1:
            seeds_of(axes, y, t)
        place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
        box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axes.annotate(text, (ends[y], y), bbox=box, zorder=5, **place)
    axes.set_xlim(0, right)


def seeds_of(axes: Axes, y: float, t: Times) -> None:
    """Every seed: a dot where it reached the target, an arrow head at the time spent where it did not."""
    places = y + np.linspace(-0.2, 0.2, t.num_seeds)
    for hours, place, arrived in zip(t.spent_h, places, t.arrived, strict=True):
        axes.plot(hours, place, **style.one_seed(arrived))


def key(bars: list[Bar]) -> list[tuple[Line2D | Patch, str]]:
    """The legend of the marks that these bars have."""
    many = any(t.num_seeds > 1 for _, t in bars)
    entries = []
    if any(t.has_interval for _, t in bars):
        entries.append(
            (Line2D([], [], color="black", marker="|", linewidth=0.9), "95 % interval of the mean")
        )
    if many:
        entries.append((Line2D([], [], **style.one_seed(True)), "one seed"))
    if not all(t.reached for _, t in bars):
        hatched = Patch(facecolor="white", edgecolor=style.FAINT, hatch="////")
        entries.append((hatched, "target not reached by every seed"))
        entries.append((Line2D([], [], color="black", linewidth=1), "mean time spent"))
    if many and not all(t.reached for _, t in bars):
        entries.append((Line2D([], [], **style.one_seed(False)), "one seed, not reached"))
    return entries


def reference_bar(bars: list[Bar], label: str | None) -> Bar | None:
    """The bar to compare with: the one named, else the first powertrip that reached the target, else None."""
    if label is None:
        return next((bar for bar in bars if bar[0].policy == "powertrip" and bar[1].reached), None)
    for bar in bars:
        if bar[0].label == label:
            return bar
    labels = ", ".join(group.label for group, _ in bars)
    raise InputError("--reference", f"no bar is labelled {printable(label)!r}", f"the labels are {labels}")


def compared(t: Times, reference: Bar | None) -> tuple[str, str]:
    """(its hours over the reference's, how much time the reference takes instead); "-" where there is no ratio."""
    if reference is None:
        return "-", "-"
    ratio = compare(t, reference[1])
    if ratio.bound not in SIGNS or not ratio.n:
        return ratio.text(), "-"
    return f"{SIGNS[ratio.bound]}{ratio.value:.2f}", words(ratio)


def words(ratio: Estimate) -> str:
    """How much time the reference takes of what takes `ratio` times as long."""
    value = ratio.value
    if not ratio.bound and round(value, 2) == 1:
        return "the same time"
    if value >= 1 and ratio.bound != "at most":
        return f"{SIGNS[ratio.bound]}{100 * (1 - 1 / value):.0f} % less time"
    if value < 1 and ratio.bound != "at least":
        return f"{'> ' if ratio.bound else ''}{1 / value:.3g} times as long"
    return "not known"
