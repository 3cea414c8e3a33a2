"""Figures of policies: time-to-accuracy by policy, for each value of one input key, and seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import NOT_SIGNIFICANT, UNKNOWN, Estimate, Times, compare, in_order, shared_seeds
from hpctrip.base.text import aligned, printable
from hpctrip.base.units import GB
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Bar = tuple[Group, Times]
MOST = 100
"""Largest number of bars or rows in a legible figure."""
UPDATE_BYTES = "network.update_bytes"
MARKS = {
    "exact": ("o", "one seed"),
    "at least": (">", "one seed, not reached: at least"),
    "at most": ("<", "one seed, baseline not reached: at most"),
}
"""{bound of a difference: its mark, and the name of the mark}."""
REFERENCE = click.Option(
    ["--reference"],
    metavar="LABEL",
    help="Policy to compare with (default: the fastest powertrip, else the first).",
)
BY = click.Option(
    ["--by"], metavar="KEY", default=UPDATE_BYTES, show_default=True, help="The input key that was varied."
)
BASELINE = click.Option(
    ["--baseline"],
    metavar="LABEL",
    help="Configuration to compare with (default: the first powertrip, else the first).",
)


@figure(RUNS, REFERENCE, TARGET)
def policies(runs: Sequence[Run], reference: str | None = None, target: float | None = None) -> Drawing:
    """Time-to-accuracy by policy.

    Runs that differ in more than their seed are bars of their own, labelled with what differs. Where the bars are not
    alike in what is no part of their policy (data, timing, network, ...), a warning and the picture say in what.

    Bars are means over n seeds, dots single seeds; above three seeds with 95 % confidence intervals (Student t; no time
    is below 0). Where a seed did not reach the target, the length of the bar is unknown: it is hatched, without an end,
    and stands below all that did; a mark shows the mean time that was spent. Policies that reached it with no seed
    stand by their best accuracy. The ratio to the reference is the geometric mean over the seeds that both have, as in
    the tables of studies: a bound where one of the two did not reach the target with some seed. Where the seeds do not
    decide which of two is faster, the difference is not significant, and the order has a ≈ between neighbours.
    """
    target = reading.common_target(runs, target)
    groups, caption = grouping.compared(runs, MOST)
    bars = bars_of(groups, target)
    bar = reference_bar(bars, reference, bars[0][0].label)

    ratios = [compare(t, bar[1]) if bar else Estimate.mean([]) for _, t in bars]
    rows = [
        (group.label, *grouping.cells_of(t), ratio.text(), words(ratio))
        for (group, t), ratio in zip(bars, ratios, strict=True)
    ]
    lines = aligned(("policy", *grouping.TIMES_HEAD, "ratio (95 %)", "reference takes"), rows)
    if bar:
        other = "" if reference or bar[0].policy == "powertrip" else "; --reference LABEL names another"
        lines.append(f"ratio: hours over those of {bar[0].label}, the reference{other}")
    order = in_order(((group.label, t) for group, t in bars if t.reached), by_verdict=True)
    lines.append(f"order at {reading.percent(target)}: {order or 'none, nothing reached it with every seed'}")

    picture, axes = style.rows([style.counted_name(g.label, t.num_seeds, 22) for g, t in bars], 1.15)
    draw_bars(axes, bars)
    axes.set_xlabel(f"Simulated hours to {reading.percent(target)} accuracy")
    style.finish(picture, f"{style.counts([t.num_seeds for _, t in bars])}; {caption}")
    table = pd.DataFrame([{"label": g.label, "policy": g.policy} | t.row() for g, t in bars])
    return Drawing(picture, table, lines)


@figure(RUNS, BY, REFERENCE, TARGET)
def policies_by(
    runs: Sequence[Run], by: str = UPDATE_BYTES, reference: str | None = None, target: float | None = None
) -> Drawing:
    """Policies for each value of one input key.

    The key is what was varied beside the policy: network.update_bytes, workload.kind, or any other. Points are means
    over seeds, above three seeds with 95 % confidence intervals (Student t), side by side in the order of the table;
    dots are single seeds, and open arrow heads seeds that did not reach the target in the time that is drawn. Where
    there are such seeds, the point is open too: it is a lower bound. Each run is measured at its own target unless one
    is named, so that workloads with targets of their own can stand side by side: such times are compared within a value
    of the key, never across.
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
        base = reference_bar(bars, reference, labels[0])
        for group, t in bars:
            ratio = compare(t, base[1]) if base else Estimate.mean([])
            instead = words(ratio) if base and group is not base[0] else "-"
            rows.append((value, group.label, *grouping.cells_of(t)[:3], instead))
            named = {by: value, "label": group.label, "policy": group.policy}
            table.append(named | t.row() | {"ratio": ratio.value})
    lines = aligned((by, "policy", *grouping.TIMES_HEAD[:3], "reference takes"), rows)

    is_wide = len(by_value) * len(labels) > 12
    picture = style.figure(3.0, style.PAGE_INCHES if is_wide else style.COLUMN_INCHES)
    axes = picture.subplots()
    draw_columns(axes, by_value, labels)
    axes.set_xlabel(axis_title(by))
    axes.set_ylabel("Simulated hours\nto the target")
    goals = sorted({target} if target else {float(run.meta["target_accuracy"]) for run in runs})
    measured = f"target {' or '.join(reading.percent(goal) for goal in goals)}; {reading.provenance(runs)}"
    times = [t for bars in by_value.values() for _, t in bars]
    points = f"{style.counts([t.num_seeds for t in times])} a point"
    intervals = ", means with 95 % intervals" if any(map(has_whiskers, times)) else ""
    open_marks = "" if all(t.reached for t in times) else "; open: at least"
    style.finish(picture, f"{measured}; {points}{intervals}{open_marks}")
    return Drawing(picture, pd.DataFrame(table), lines)


def bars_of(groups: Sequence[Group], target: float) -> list[Bar]:
    """The groups with their times, in the order of `Times.place`, ties by label."""
    bars = [(group, group.times(target)) for group in groups]
    return sorted(bars, key=lambda bar: (*bar[1].place, bar[0].label))


def reference_bar(bars: list[Bar], label: str | None, without: str) -> Bar | None:
    """The bar to compare with: the one named, else the first powertrip, and without one the bar labelled `without`;
    None where these did not reach the target."""
    if label is None:
        own = [bar for bar in bars if bar[0].policy == "powertrip"]
        own = own or [bar for bar in bars if bar[0].label == without]
        return next((bar for bar in own if bar[1].reached), None)
    for bar in bars:
        if bar[0].label == label:
            return bar
    labels = ", ".join(group.label for group, _ in bars)
    raise InputError("--reference", f"no bar is labelled {label!r}", f"the labels are {labels}")


def words(ratio: Estimate) -> str:
    """The time of the reference, in words, compared with that of a policy that takes `ratio` times as long."""
    value, bound = ratio.value, ratio.bound
    if not ratio.n or bound == UNKNOWN:
        return "-"
    if ratio.verdict == NOT_SIGNIFICANT and ratio.low != ratio.high:
        return NOT_SIGNIFICANT
    if not bound and round(value, 2) == 1:
        return "the same time"
    sign = "> " if bound else ""
    if value >= 1:
        return "not known" if bound == "at most" else f"{sign}{100 * (1 - 1 / value):.0f} % less time"
    return "not known" if bound == "at least" else f"{sign}{1 / value:.3g} times as long"


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


def axis_title(key: str) -> str:
    """An input key in words: its last part, or the table of a `kind`; the unit is on the ticks."""
    *tables, name = key.split(".")
    words = (tables[-1] if tables and name in ("kind", "path") else name).replace("_", " ")
    words = words.replace(" bytes", " size").replace(" bps", "")
    return words if len(words) == 1 else words[0].upper() + words[1:]


def _tick(key: str, value: object) -> str:
    """A value on the axis."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value / GB:g} GB" if key.endswith("_bytes") else f"{value:g}"
    return printable(str(value), 40)


def has_whiskers(times: Times) -> bool:
    """Whether a mean is drawn with its interval."""
    return times.reached and style.has_whiskers(times.num_seeds)


def draw_bars(axes: Axes, bars: list[Bar]) -> None:
    """One bar for each group, from top to bottom."""
    ends = [max([*t.spent_h, t.mean.high if has_whiskers(t) else 0]) for _, t in bars]
    # room for what is written after the longest bar
    right = max(end * (1.3 if t.reached else 2.1) for end, (_, t) in zip(ends, bars, strict=True))
    for y, (group, t) in enumerate(bars):
        if t.reached:
            colour = style.BLUE if group.policy == "powertrip" else style.SKY
            axes.barh(y, t.mean.value, height=0.66, color=colour)
            text = f"{t.mean.value:.3g}"
        else:
            name = "target not reached by every seed"
            axes.barh(y, right, height=0.66, linewidth=0, label=name, **style.HATCHED)
            look = {"color": "black", "linewidth": 1, "label": "mean time spent"}
            axes.plot([t.mean.value] * 2, [y - 0.33, y + 0.33], **look)
            some = f"{t.num_reached}/{t.num_seeds} reached" if t.num_reached else ""
            text = f"> {t.mean.value:.3g}, {some or f'best {reading.percent(t.best_accuracy)}'}"
        if has_whiskers(t):
            look = {"fmt": "none", "color": "black", "capsize": 2.5, "elinewidth": 0.9}
            name = "95 % interval of the mean"
            axes.errorbar(t.mean.value, y + style.MEAN, xerr=t.mean.bars, label=name, **look)
        if t.num_seeds > 1:
            places = y + style.beside_mean(t.num_seeds)
            for hours, place, arrived in zip(t.spent_h, places, t.arrived, strict=True):
                axes.plot(hours, place, **style.one_seed(arrived))
        place = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
        box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axes.annotate(text, (ends[y], y), bbox=box, zorder=5, **place)
    axes.set_xlim(0, right)


def draw_columns(axes: Axes, by_value: dict[str, list[Bar]], labels: list[str]) -> None:
    """A column of points for every value, one place in it for every policy."""
    width = 0.7 / len(labels)
    for i, label in enumerate(labels):
        look = style.point(i) | {"linestyle": "none", "markersize": 5, "elinewidth": 0.9, "capsize": 2.5}
        for x, bars in enumerate(by_value.values()):
            t = next((t for group, t in bars if group.label == label), None)
            if t is None:
                continue
            at = x + (i - (len(labels) - 1) / 2) * width
            face = look["color"] if t.reached else "white"
            bars = t.mean.bars if has_whiskers(t) else None
            mean = at + width * style.MEAN
            axes.errorbar(mean, t.mean.value, yerr=bars, label=label, markerfacecolor=face, **look)
            if t.num_seeds > 1:
                places = at + width * (0.1 + style.beside_mean(t.num_seeds))
                for place, hours, arrived in zip(places, t.spent_h, t.arrived, strict=True):
                    axes.plot(place, hours, **style.one_seed(arrived, "^"))
    axes.set_xticks(range(len(by_value)), list(by_value))
    axes.set_xlim(-0.6, len(by_value) - 0.4)
    axes.set_ylim(bottom=0)
    style.grid(axes, "y")


class Pairs(NamedTuple):
    """A configuration against the baseline, over the n seeds that both have and at least one brought to the target."""

    label: str
    seeds: list[int]
    num_left_out: int
    """The number of the other seeds."""
    hours: np.ndarray
    """[n] its hours less the baseline's."""
    bounds: list[str]
    """[n] "exact", "at least" where it did not reach the target, or "at most" where the baseline did not."""
    ratio: Estimate
    """Its time over the baseline's."""
    mean: Estimate
    """The mean difference in hours; NaN where one is not known."""


def pairs_of(label: str, own: Times, base: Times) -> Pairs:
    """Compare the times of a configuration with those of the baseline."""
    shared = shared_seeds(own, base)
    both = own.of_seeds(shared).arrived | base.of_seeds(shared).arrived
    seeds = [seed for seed, arrived in zip(shared, both, strict=True) if arrived]
    num_left_out, ratio = len({*own.seeds, *base.seeds}) - len(seeds), compare(own, base)
    own, base = own.of_seeds(seeds), base.of_seeds(seeds)
    hours = own.spent_h - base.spent_h
    bounds = np.where(~own.arrived, "at least", np.where(base.arrived, "exact", "at most")).tolist()
    return Pairs(
        label, seeds, num_left_out, hours, bounds, ratio, Estimate.mean([] if ratio.bound else hours)
    )


@figure(RUNS, BASELINE, TARGET)
def paired(runs: Sequence[Run], baseline: str | None = None, target: float | None = None) -> Drawing:
    """Time-to-accuracy less a baseline's, seed by seed.

    Two configurations that share a seed share its sites, power and data, so their difference says more than two
    intervals that overlap. Dots are seeds, the bar is the mean of the n differences with its 95 % confidence interval
    (Student t), which is drawn above three seeds. Whether one of the two is faster is decided by the ratio of their
    times, as in all tables and figures: by the interval of its geometric mean over the seeds. Where one of a pair did
    not reach the target, the difference is at least (arrow to the right) or at most (arrow to the left) what is drawn,
    and there is no mean. Seeds that only one of the two has are left out and counted, and so are seeds that neither
    brought to the target: they leave the ratio unknown.
    """
    target = reading.common_target(runs, target)
    groups, caption = grouping.compared(runs, MOST)
    base = baseline_of(groups, baseline)
    base_times = base.times(target)
    others = bars_of([group for group in groups if group is not base], target)
    if not any(shared_seeds(times, base_times) for _, times in others):
        hint = "give runs of the same seeds, or name another --baseline"
        raise InputError("the runs", f"share no seed with {base.label}", hint)
    rows = [pairs_of(group.label, times, base_times) for group, times in others]
    rows.sort(key=lambda p: not p.seeds)

    cells, table = [], []
    for p in rows:
        mean, n = p.mean, len(p.seeds)
        hours = f"{mean.value:+.3g}" if np.isfinite(mean.value) else "-"
        interval = f"{mean.low:+.3g} to {mean.high:+.3g}" if np.isfinite(mean.low) else "-"
        ratio = p.ratio.text(), p.ratio.verdict
        cells.append((p.label, str(n), hours, interval, *ratio, str(p.num_left_out)))
        shown = {"mean_h": mean.value, "low_h": mean.low, "high_h": mean.high, "n": n}
        for seed, difference, bound in zip(p.seeds, p.hours, p.bounds, strict=True):
            table.append({"label": p.label, "seed": seed, "difference_h": difference, "is": bound} | shown)
    means = "mean difference h", "95 % interval", "ratio (95 %)"
    head = ("configuration", "n", *means, f"than {base.label}", "seeds left out")

    picture, axes = style.rows([style.counted_name(p.label, len(p.seeds), 22) for p in rows], 1.3)
    draw_differences(axes, rows)
    label = f"Simulated hours to {reading.percent(target)}, less those of {base.label} with the same seed"
    axes.set_xlabel(style.wrapped(label, 36))
    style.finish(picture, f"{style.counts([len(p.seeds) for p in rows])}; {caption}")
    columns = ["label", "seed", "difference_h", "is", "mean_h", "low_h", "high_h", "n"]
    return Drawing(picture, pd.DataFrame(table, columns=columns), aligned(head, cells))


def baseline_of(groups: Sequence[Group], label: str | None) -> Group:
    """The configuration named, else the first powertrip, else the first. InputError where none has this name, or there
    is nothing to compare."""
    labels = ", ".join(group.label for group in groups)
    if len(groups) < 2:
        raise InputError("the runs", f"are of one configuration, {labels}", "give others to compare it with")
    if label is None:
        return next((group for group in groups if group.policy == "powertrip"), groups[0])
    for group in groups:
        if group.label == label:
            return group
    raise InputError("--baseline", f"nothing is labelled {label!r}", f"the labels are {labels}")


def draw_differences(axes: Axes, rows: Sequence[Pairs]) -> None:
    """One row for each configuration."""
    axes.axvline(0, color="black", linewidth=0.8)
    for y, p in enumerate(rows):
        style.mean_bar(axes, y, p.mean)
        for hours, place, bound in zip(p.hours, y + style.beside_mean(len(p.seeds)), p.bounds, strict=True):
            mark, name = MARKS[bound]
            axes.plot(hours, place, **style.one_seed(bound == "exact", mark) | {"label": name})
        if not p.seeds:
            style.say_empty(axes, "neither reached the target", y)
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)
    style.grid(axes, "x")
