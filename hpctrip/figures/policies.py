"""Figures of policies: time-to-accuracy by policy, and for each value of one input key."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Estimate, Times, compare, in_order
from hpctrip.base.text import printable
from hpctrip.base.units import GB
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

Bar = tuple[Group, Times]
MOST = 100
"""Number of bars that can still be looked at."""
SIGNS = {"": "", "at least": "> ", "at most": "< "}
"""{bound: its sign in print}."""
UPDATE_BYTES = "network.update_bytes"
REFERENCE = click.Option(
    ["--reference"], metavar="LABEL", help="Policy to compare with (default: the fastest powertrip)."
)
BY = click.Option(
    ["--by"], metavar="KEY", default=UPDATE_BYTES, show_default=True, help="The input key that was varied."
)


@figure(RUNS, REFERENCE, TARGET)
def policies(runs: Sequence[Run], reference: str | None = None, target: float | None = None) -> Drawing:
    """Time-to-accuracy by policy.

    Runs that differ in more than their seed are bars of their own, labelled with what differs. Where the bars are not
    alike in what is no part of their policy (data, timing, network, ...), a warning and the picture say in what.

    Bars are means over n seeds with 95 % confidence intervals (Student t; no time is below 0), dots single seeds. Where
    a seed did not reach the target, nobody knows how long the bar is: it is hatched, without an end, and stands below
    all that did; a mark shows the mean time that was spent. The ratio to the reference is the geometric mean over the
    seeds that both have, as in the tables of studies: a bound where one of the two did not reach the target with some
    seed.
    """
    target = reading.common_target(runs, target)
    groups = grouping.grouped(runs, MOST)
    unlike = grouping.warn_of_differences(groups)
    bars = bars_of(groups, target)
    bar = reference_bar(bars, reference)

    rows = [(group.label, *grouping.cells_of(t), *compared(t, bar)) for group, t in bars]
    lines = aligned(("policy", *grouping.TIMES_HEAD, "ratio", "reference takes"), rows)
    if bar:
        lines.append(f"ratio: hours over those of {bar[0].label}, the reference")
    order = in_order((group.label, t) for group, t in bars if t.reached)
    lines.append(f"order at {reading.percent(target)}: {order or 'none, nothing reached it with every seed'}")

    picture, axes = style.rows([style.counted_name(g.label, t.num_seeds, 22) for g, t in bars], 1.15)
    draw_bars(axes, bars)
    axes.set_xlabel(f"Simulated hours to {reading.percent(target)} accuracy")
    style.heading(picture, reading.provenance(runs, unlike))
    style.legend_below(picture, key_of_bars([t for _, t in bars]))
    table = pd.DataFrame([{"label": g.label, "policy": g.policy} | t.row() for g, t in bars])
    return Drawing(picture, table, lines)


@figure(RUNS, BY, REFERENCE, TARGET)
def policies_by(
    runs: Sequence[Run], by: str = UPDATE_BYTES, reference: str | None = None, target: float | None = None
) -> Drawing:
    """Policies for each value of one input key.

    The key is what was varied beside the policy: network.update_bytes, workload.kind, or any other.
    Points are means over seeds with 95 % confidence intervals (Student t), side by side in the order of the table; dots
    are single seeds, and open arrow heads seeds that did not reach the target in the time that is drawn. Where there
    are such seeds, the point is open too: it is a lower bound. Each run is measured at its own target unless one is
    named, so that workloads with targets of their own can stand side by side: such times are compared within a value of
    the key, never across.
    """
    by_value = {
        value: bars_of(grouping.grouped(same), reading.common_target(same, target))
        for value, same in of_each_value(runs, by).items()
    }
    labels = list(dict.fromkeys(group.label for bars in by_value.values() for group, _ in bars))
    if len(labels) > style.MOST_LINES:
        raise InputError("the runs", f"are of {len(labels)} policies", f"give at most {style.MOST_LINES}")

    rows, table = [], []
    for value, bars in by_value.items():
        base = reference_bar(bars, reference)
        for group, t in bars:
            ratio = compare(t, base[1]).value if base else np.nan
            instead = compared(t, base)[1] if base and group is not base[0] else "-"
            rows.append((value, group.label, *grouping.cells_of(t)[:3], instead))
            named = {by: value, "label": group.label, "policy": group.policy}
            table.append(named | t.row() | {"ratio": ratio})
    lines = aligned((by, "policy", *grouping.TIMES_HEAD[:3], "reference takes"), rows)

    is_wide = len(by_value) * len(labels) > 12
    picture = style.figure(3.0, style.PAGE_INCHES if is_wide else style.COLUMN_INCHES)
    axes = picture.subplots()
    draw_columns(axes, by_value, labels)
    axes.set_xlabel(by)
    axes.set_ylabel("Simulated hours\nto the target")
    goals = sorted({target} if target else {float(run.meta["target_accuracy"]) for run in runs})
    measured = f"target {' or '.join(reading.percent(goal) for goal in goals)}; {reading.provenance(runs)}"
    times = [t for bars in by_value.values() for _, t in bars]
    style.heading(picture, f"{measured}; {style.seeds([t.num_seeds for t in times])} a point")
    style.legend_below(picture, key_of_columns(times))
    return Drawing(picture, pd.DataFrame(table), lines)


def bars_of(groups: Sequence[Group], target: float) -> list[Bar]:
    """The groups with their times, fastest first, ties by label."""
    bars = [(group, group.times(target)) for group in groups]
    return sorted(bars, key=lambda bar: (*bar[1].place, bar[0].label))


def reference_bar(bars: list[Bar], label: str | None) -> Bar | None:
    """The bar to compare with: the one named, else the first powertrip that reached the target, else None."""
    if label is None:
        return next((bar for bar in bars if bar[0].policy == "powertrip" and bar[1].reached), None)
    for bar in bars:
        if bar[0].label == label:
            return bar
    labels = ", ".join(group.label for group, _ in bars)
    raise InputError("--reference", f"no bar is labelled {label!r}", f"the labels are {labels}")


def compared(t: Times, reference: Bar | None) -> tuple[str, str]:
    """(its hours over the reference's, how much time the reference takes instead); "-" where there is no ratio."""
    if reference is None:
        return "-", "-"
    ratio = compare(t, reference[1])
    if ratio.bound not in SIGNS or not ratio.n:
        return ratio.text(), "-"
    return f"{SIGNS[ratio.bound]}{ratio.value:.2f}", words(ratio)


def words(ratio: Estimate) -> str:
    """The time of the reference, in words, compared with that of a policy that takes `ratio` times as long."""
    value = ratio.value
    if not ratio.bound and round(value, 2) == 1:
        return "the same time"
    if value >= 1 and ratio.bound != "at most":
        return f"{SIGNS[ratio.bound]}{100 * (1 - 1 / value):.0f} % less time"
    if value < 1 and ratio.bound != "at least":
        return f"{'> ' if ratio.bound else ''}{1 / value:.3g} times as long"
    return "not known"


def of_each_value(runs: Sequence[Run], key: str) -> dict[str, list[Run]]:
    """{value as text: its runs}, in ascending order. Raises InputError where a run has no such key."""
    by_value: dict[object, list[Run]] = {}
    for run in runs:
        value = run.setting(key)
        if value is None or isinstance(value, list):
            problem = f"has no single value of the key {key!r}"
            raise InputError(str(run.path), problem, "name another --by")
        by_value.setdefault(value, []).append(run)
    numbers = all(isinstance(value, int | float) for value in by_value)
    return {_tick(key, value): by_value[value] for value in sorted(by_value, key=None if numbers else str)}


def _tick(key: str, value: object) -> str:
    """A value on the axis."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value / GB:g} GB" if key.endswith("_bytes") else f"{value:g}"
    return printable(str(value), 40)


def draw_bars(axes: Axes, bars: list[Bar]) -> None:
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
            axes.barh(y, right, height=0.66, linewidth=0, **style.HATCHED)
            axes.plot([t.hours] * 2, [y - 0.33, y + 0.33], color="black", linewidth=1)
            some = f"{t.num_reached}/{t.num_seeds} reached" if t.num_reached else ""
            text = f"> {t.hours:.3g}, {some or f'best {reading.percent(t.best_accuracy)}'}"
        if t.has_interval:
            look = {"fmt": "none", "color": "black", "capsize": 2.5, "elinewidth": 0.9}
            axes.errorbar(t.hours, y, xerr=t.bars[:, None], **look)
        if t.num_seeds > 1:
            places = y + np.linspace(-0.2, 0.2, t.num_seeds)
            for hours, place, arrived in zip(t.spent_h, places, t.arrived, strict=True):
                axes.plot(hours, place, **style.one_seed(arrived))
        place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
        box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axes.annotate(text, (ends[y], y), bbox=box, zorder=5, **place)
    axes.set_xlim(0, right)


def key_of_bars(times: list[Times]) -> style.Legend:
    """The legend of the marks that these bars have."""
    many, missed = any(t.num_seeds > 1 for t in times), not all(t.reached for t in times)
    return style.used(
        (any(t.has_interval for t in times), style.INTERVAL, "95 % interval of the mean"),
        (many, style.one_seed(True), "one seed"),
        (missed, Patch(**style.HATCHED), "target not reached by every seed"),
        (missed, {"color": "black", "linewidth": 1}, "mean time spent"),
        (many and missed, style.one_seed(False), "one seed, not reached"),
    )


def draw_columns(axes: Axes, by_value: dict[str, list[Bar]], labels: list[str]) -> None:
    """A column of points for every value, one place in it for every policy."""
    width = 0.7 / len(labels)
    for i, label in enumerate(labels):
        look = {"color": style.CYCLE[i], "fmt": style.MARKS[i], "markersize": 5}
        look |= {"elinewidth": 0.9, "capsize": 2.5}
        name: str | None = label
        for x, bars in enumerate(by_value.values()):
            t = next((t for group, t in bars if group.label == label), None)
            if t is None:
                continue
            at = x + (i - (len(labels) - 1) / 2) * width
            face = style.CYCLE[i] if t.reached else "white"
            axes.errorbar(at, t.hours, yerr=t.bars[:, None], label=name, markerfacecolor=face, **look)
            if t.num_seeds > 1:
                places = at + width * np.linspace(-0.3, 0.3, t.num_seeds)
                for place, hours, arrived in zip(places, t.spent_h, t.arrived, strict=True):
                    axes.plot(place, hours, **style.one_seed(arrived, "^"))
            name = None  # one entry in the legend
    axes.set_xticks(range(len(by_value)), list(by_value))
    axes.set_xlim(-0.6, len(by_value) - 0.4)
    axes.set_ylim(bottom=0)
    style.grid(axes, "y")


def key_of_columns(times: list[Times]) -> style.Legend:
    """The legend of the marks that are no policy's."""
    many, missed = any(t.num_seeds > 1 for t in times), not all(t.reached for t in times)
    look = {"marker": "o", "markersize": 5, "markerfacecolor": "white", "color": "black", "linestyle": "none"}
    return style.used(
        (many, style.one_seed(True), "one seed"),
        (many, style.INTERVAL, "mean, 95 % interval"),
        (missed, look, "open: at least"),
        (many and missed, style.one_seed(False, "^"), "seed, not reached"),
    )
