"""Time-to-accuracy less a baseline's, seed by seed.

Two configurations that share a seed share its sites, power and data, so their difference says more than two intervals
that overlap. Dots are seeds, the bar is the mean of the n differences with its 95 % confidence interval (Student t).
Whether the two are told apart is decided by the ratio of their times, as in all tables and figures: by the interval of
its geometric mean over the seeds. Where one of a pair did not reach the target, the difference is at least (arrow to
the right) or at most (arrow to the left) what is drawn, and there is no mean. Seeds that only one of the two has are
left out and counted, and so are seeds that neither brought to the target: they leave the ratio unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Estimate, Times, compare, shared_seeds
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.record.reader import Run

MOST = 100
"""Number of rows that can still be looked at."""
MARKS = {
    "exact": ("o", "one seed"),
    "at least": (">", "one seed, not reached: at least"),
    "at most": ("<", "one seed, baseline not reached: at most"),
}
"""{bound of a difference: its mark, and the name of the mark}."""


@dataclass(frozen=True)
class Pairs:
    """A configuration against the baseline."""

    label: str
    own: Times
    base: Times

    @cached_property
    def seeds(self) -> list[int]:
        """The seeds that both have and at least one brought to the target, [n]."""
        shared = shared_seeds(self.own, self.base)
        both = self.own.of_seeds(shared).arrived | self.base.of_seeds(shared).arrived
        return [seed for seed, arrived in zip(shared, both, strict=True) if arrived]

    @cached_property
    def num_left_out(self) -> int:
        """The number of the other seeds."""
        return len({*self.own.seeds, *self.base.seeds}) - len(self.seeds)

    @cached_property
    def ratio(self) -> Estimate:
        """Its time over the baseline's."""
        return compare(self.own, self.base)

    @cached_property
    def hours(self) -> np.ndarray:
        """[n] its hours less the baseline's."""
        return self.own.of_seeds(self.seeds).spent_h - self.base.of_seeds(self.seeds).spent_h

    @cached_property
    def bounds(self) -> list[str]:
        """[n] "exact", "at least" where it did not reach the target, or "at most" where the baseline did not."""
        arrived = self.own.of_seeds(self.seeds).arrived, self.base.of_seeds(self.seeds).arrived
        return ["exact" if a and b else "at most" if a else "at least" for a, b in zip(*arrived, strict=True)]

    @cached_property
    def mean(self) -> Estimate:
        """The mean difference in hours; NaN where one is not known."""
        return Estimate.mean([] if self.ratio.bound else self.hours)


BASELINE = click.Option(
    ["--baseline"], metavar="LABEL", help="What to compare with (default: the first powertrip)."
)


@figure(RUNS, BASELINE, TARGET)
def plot(runs: Sequence[Run], baseline: str | None = None, target: float | None = None) -> Drawing:
    """Every configuration against the baseline."""
    target = reading.common_target(runs, target)
    groups = grouping.grouped(runs, MOST)
    unlike = grouping.warn_of_differences(groups)
    base = baseline_of(groups, baseline)
    base_times = base.times(target)
    rows = [Pairs(group.label, group.times(target), base_times) for group in groups if group is not base]
    rows.sort(key=lambda p: (not p.seeds, np.median(p.hours) if p.seeds else 0.0, p.label))

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
    draw(axes, rows)
    label = f"Simulated hours to {reading.percent(target)}, less those of {base.label} with the same seed"
    axes.set_xlabel(style.wrapped(label, 36))
    style.heading(picture, reading.provenance(runs, unlike))
    style.legend_below(picture, key(rows))
    columns = ["label", "seed", "difference_h", "is", "mean_h", "low_h", "high_h", "n"]
    return Drawing(picture, pd.DataFrame(table, columns=columns), aligned(head, cells))


def baseline_of(groups: Sequence[Group], label: str | None) -> Group:
    """The configuration named, else the first powertrip. InputError where there is none, or nothing to compare."""
    labels = ", ".join(group.label for group in groups)
    if len(groups) < 2:
        raise InputError("the runs", f"are of one configuration, {labels}", "give others to compare it with")
    for group in groups:
        if group.label == label or (label is None and group.policy == "powertrip"):
            return group
    missing = f"nothing is labelled {label!r}" if label else "no run is of policy powertrip"
    raise InputError("--baseline", missing, f"the labels are {labels}")


def draw(axes: Axes, rows: Sequence[Pairs]) -> None:
    """One row for each configuration."""
    axes.axvline(0, color="black", linewidth=0.8)
    for y, p in enumerate(rows):
        style.mean_bar(axes, y, p.mean)
        places = y + np.linspace(-0.16, 0.16, len(p.seeds)) if len(p.seeds) > 1 else [y]
        for hours, place, bound in zip(p.hours, places, p.bounds, strict=False):
            axes.plot(hours, place, **style.one_seed(bound == "exact", MARKS[bound][0]))
    axes.margins(x=0.08)
    style.grid(axes, "x")


def key(rows: Sequence[Pairs]) -> style.Legend:
    """The legend of the marks that these rows have."""
    bounds = {bound for p in rows for bound in p.bounds}
    exact, *others = (
        (bound in bounds, style.one_seed(bound == "exact", mark), name)
        for bound, (mark, name) in MARKS.items()
    )
    has_mean = any(np.isfinite(p.mean.low) for p in rows)
    interval = {"color": style.BLUE, "linewidth": 1.2, "marker": "|"}
    return style.used(exact, (has_mean, interval, "mean, 95 % interval"), *others)
