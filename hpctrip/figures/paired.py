"""Time-to-accuracy less a baseline's, seed by seed.

Two configurations that share a seed share its sites, power and data, so their difference says more than two intervals
that overlap. Dots are seeds, the bar is the mean of the n differences with its 95 % confidence interval (Student t):
where it does not hold 0, the two are told apart. Where one of a pair did not reach the target, the difference is at
least (arrow to the right) or at most (arrow to the left) what is drawn, and there is no mean. Seeds that only one of
the two has, or that neither brought to the target, are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import grouping, intervals, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.sources import RUNS, TARGET
from hpctrip.record.reader import Run

MOST = 100
"""So many rows are still looked at."""
MARKS = {0: "o", 1: ">", -1: "<"}
"""The difference is what it is, at least that, or at most that."""


@dataclass(frozen=True)
class Pairs:
    """A configuration against the baseline, over the seeds that both have and at least one brought to the target."""

    label: str
    seeds: list[int]
    hours: np.ndarray
    """[n] its hours less the baseline's."""
    bound: np.ndarray
    """[n] 0: known; 1: it did not reach the target, so at least that; -1: the baseline did not, so at most."""
    num_left_out: int

    @property
    def mean(self) -> tuple[float, float]:
        """Mean and half width of its interval; NaN where a difference is not known, or there is none."""
        if len(self.hours) == 0 or self.bound.any():
            return np.nan, np.nan
        return intervals.mean_and_interval(self.hours)

    @property
    def verdict(self) -> str:
        """What the interval says, in words."""
        mean, half = self.mean
        if not np.isfinite(half):
            return "no interval"
        if mean - half > 0 or mean + half < 0:
            return "slower" if mean > 0 else "faster"
        return "not told apart"


@figure(
    RUNS,
    click.Option(
        ["--baseline"], metavar="LABEL", help="What to compare with (default: the first powertrip)."
    ),
    TARGET,
)
def plot(runs: Sequence[Run], baseline: str | None = None, target: float | None = None) -> Drawing:
    """Every configuration against the baseline."""
    target = reading.common_target(runs, target)
    groups = grouping.grouped(runs, MOST)
    unlike = grouping.warn_of_differences(groups)
    base = baseline_of(groups, baseline)
    found = [pairs(group, base, target) for group in groups if group is not base]
    found.sort(key=lambda p: (len(p.hours) == 0, np.median(p.hours) if len(p.hours) else 0.0))

    rows, table = [], []
    for p in found:
        mean, half = p.mean
        interval = f"{mean - half:+.3g} to {mean + half:+.3g}" if np.isfinite(half) else "-"
        said = f"{mean:+.3g}" if np.isfinite(mean) else "-"
        rows.append((p.label, str(len(p.hours)), said, interval, p.verdict, str(p.num_left_out)))
        shown = {"mean_h": mean, "low_h": mean - half, "high_h": mean + half, "n": len(p.hours)}
        for seed, hours, bound in zip(p.seeds, p.hours, p.bound, strict=True):
            how = {0: "exact", 1: "at least", -1: "at most"}[int(bound)]
            table.append({"label": p.label, "seed": seed, "difference_h": hours, "is": how} | shown)
    head = (
        "configuration",
        "n",
        "mean difference h",
        "95 % interval",
        f"than {base.label}",
        "seeds left out",
    )

    lines_of_name = max(name.count("\n") + 1 for name in names(found))
    picture = style.figure(1.3 + max(0.31, 0.12 * lines_of_name + 0.07) * len(found))
    axes = picture.subplots()
    draw(axes, found)
    said = f"Simulated hours to {reading.percent(target)}, less those of {base.label} with the same seed"
    axes.set_xlabel(style.wrapped(said, 36))
    style.heading(picture, reading.provenance(runs, unlike))
    style.legend_below(picture, key(found))
    columns = ["label", "seed", "difference_h", "is", "mean_h", "low_h", "high_h", "n"]
    return Drawing(picture, pd.DataFrame(table, columns=columns), aligned(head, rows))


def baseline_of(groups: Sequence[Group], label: str | None) -> Group:
    """The configuration named, else the first powertrip. InputError where there is none, or nothing to compare."""
    known = ", ".join(group.label for group in groups)
    if len(groups) < 2:
        raise InputError("the runs", f"are of one configuration, {known}", "give others to compare it with")
    for group in groups:
        if group.label == label or (label is None and group.policy == "powertrip"):
            return group
    problem = (
        "no run is of policy powertrip" if label is None else f"nothing is labelled {printable(label)!r}"
    )
    raise InputError("--baseline", problem, f"the labels are {known}")


def pairs(group: Group, base: Group, target: float) -> Pairs:
    """The differences of one configuration."""
    of_base = {run.meta["seed"]: run for run in base.runs}
    seeds, hours, bound = [], [], []
    for run in sorted(group.runs, key=lambda run: run.meta["seed"]):
        other = of_base.get(run.meta["seed"])
        if other is None:
            continue
        (own_s, arrived), (other_s, other_arrived) = run.spent(target), other.spent(target)
        if not arrived and not other_arrived:
            continue
        seeds.append(run.meta["seed"])
        hours.append((own_s - other_s) / HOUR_S)
        bound.append(int(other_arrived) - int(arrived))
    all_seeds = {run.meta["seed"] for run in (*group.runs, *base.runs)}
    return Pairs(group.label, seeds, np.array(hours), np.array(bound, dtype=int), len(all_seeds) - len(seeds))


def draw(axes: Axes, found: Sequence[Pairs]) -> None:
    """One row for each configuration."""
    axes.axvline(0, color="black", linewidth=0.8)
    for y, p in enumerate(found):
        mean, half = p.mean
        if np.isfinite(mean):
            axes.plot([mean, mean], [y - 0.28, y + 0.28], color=style.BLUE, linewidth=2)
        if np.isfinite(half):
            axes.errorbar(mean, y, xerr=half, fmt="none", color=style.BLUE, capsize=3, elinewidth=1.2)
        places = y + np.linspace(-0.16, 0.16, len(p.hours)) if len(p.hours) > 1 else [y]
        for hours, place, bound in zip(p.hours, places, p.bound, strict=False):
            axes.plot(hours, place, **style.one_seed(bound == 0, MARKS[int(bound)]))
    axes.set_yticks(range(len(found)), names(found), multialignment="right", linespacing=1.1)
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.08)
    style.grid(axes, "x")


def names(found: Sequence[Pairs]) -> list[str]:
    """What stands beside every row."""
    return [style.counted_name(p.label, len(p.hours), 22) for p in found]


def key(found: Sequence[Pairs]) -> list[tuple[Line2D, str]]:
    """What the marks mean."""
    entries = []
    if any((p.bound == 0).any() for p in found):
        entries.append((Line2D([], [], **style.one_seed(True)), "one seed"))
    if any(np.isfinite(p.mean[1]) for p in found):
        entries.append((Line2D([], [], color=style.BLUE, linewidth=1.2, marker="|"), "mean, 95 % interval"))
    for bound, said in (
        (1, "one seed, not reached: at least"),
        (-1, "one seed, baseline not reached: at most"),
    ):
        if any((p.bound == bound).any() for p in found):
            entries.append((Line2D([], [], **style.one_seed(False, MARKS[bound])), said))
    return entries
