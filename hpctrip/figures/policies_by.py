"""Policies for each value of one input key.

The key is what was varied beside the policy: network.update_bytes, workload.kind, or any other.
Points are means over seeds with 95 % confidence intervals (Student t), side by side in the order of the table; dots
are single seeds, and open arrow heads seeds that did not reach the target in the time that is drawn. Where there are
such seeds, the point is open too: it is a lower bound. Each
run is measured at its own target unless one is named, so that workloads with targets of their own can stand side by
side: such times are compared within a value of the key, never across.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from hpctrip.base.errors import InputError
from hpctrip.base.stats import Times, compare
from hpctrip.base.text import printable
from hpctrip.base.units import GB
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS, TARGET
from hpctrip.figures.policies import Bar, bars_of, compared, reference_bar
from hpctrip.record.reader import Run

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Policies are told apart by colour, and without colours by these."""
UPDATE_BYTES = "network.update_bytes"


@figure(
    RUNS,
    click.Option(
        ["--by"],
        metavar="KEY",
        default=UPDATE_BYTES,
        show_default=True,
        help="The input key that was varied.",
    ),
    click.Option(
        ["--reference"], metavar="LABEL", help="What to compare with (default: the fastest powertrip)."
    ),
    TARGET,
)
def plot(
    runs: Sequence[Run], by: str = UPDATE_BYTES, reference: str | None = None, target: float | None = None
) -> Drawing:
    """The policies at every value of the key."""
    by_value = {
        value: bars_of(grouping.grouped(same), reading.common_target(same, target))
        for value, same in of_each_value(runs, by).items()
    }
    labels = list(dict.fromkeys(group.label for bars in by_value.values() for group, _ in bars))
    if len(labels) > len(MARKERS):
        raise InputError("the runs", f"are of {len(labels)} policies", f"give at most {len(MARKERS)}")

    rows, table = [], []
    for value, bars in by_value.items():
        base = reference_bar(bars, reference)
        for group, t in bars:
            ratio = compare(t, base[1]).value if base else np.nan
            instead = compared(t, base)[1] if base and group is not base[0] else "-"
            rows.append((value, group.label, str(t), str(t.num_seeds), str(t.num_reached), instead))
            named = {by: value, "label": group.label, "policy": group.policy}
            table.append(named | t.row() | {"ratio": ratio})
    head = (by, "policy", "TTA h (95 % interval)", "seeds", "reached", "reference takes")
    lines = aligned(head, rows)

    picture = style.figure(
        3.0, style.PAGE_INCHES if len(by_value) * len(labels) > 12 else style.COLUMN_INCHES
    )
    axes = picture.subplots()
    draw(axes, by_value, labels)
    axes.set_xlabel(by)
    axes.set_ylabel("Simulated hours\nto the target")
    goals = sorted({target} if target else {float(run.meta["target_accuracy"]) for run in runs})
    measured = f"target {' or '.join(reading.percent(goal) for goal in goals)}; {reading.provenance(runs)}"
    times = [t for bars in by_value.values() for _, t in bars]
    style.heading(picture, f"{measured}; {style.seeds([t.num_seeds for t in times])} a point")
    style.legend_below(picture, [*zip(*axes.get_legend_handles_labels(), strict=True), *key(times)])
    return Drawing(picture, pd.DataFrame(table), lines)


def of_each_value(runs: Sequence[Run], key: str) -> dict[str, list[Run]]:
    """{value in words: its runs}, in ascending order. Raises InputError where a run has no such key."""
    by_value = {}
    for run in runs:
        value = run.setting(key)
        if value is None or isinstance(value, list):
            raise InputError(
                str(run.path), f"has no single value of the key {printable(key)!r}", "name another --by"
            )
        by_value.setdefault(value, []).append(run)
    numbers = all(isinstance(value, int | float) for value in by_value)
    return {_tick(key, value): by_value[value] for value in sorted(by_value, key=None if numbers else str)}


def _tick(key: str, value: object) -> str:
    """A value on the axis."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value / GB:g} GB" if key.endswith("_bytes") else f"{value:g}"
    return printable(str(value), 40)


def draw(axes: Axes, by_value: dict[str, list[Bar]], labels: list[str]) -> None:
    """A column of points for every value, one place in it for every policy."""
    width = 0.7 / len(labels)
    for i, label in enumerate(labels):
        colour, marker, name = style.CYCLE[i], MARKERS[i], label
        for x, bars in enumerate(by_value.values()):
            t = next((t for group, t in bars if group.label == label), None)
            if t is None:
                continue
            at = x + (i - (len(labels) - 1) / 2) * width
            face = colour if t.reached else "white"
            reach = np.nan_to_num([[t.hours - t.low], [t.high - t.hours]])
            look = {
                "color": colour,
                "markersize": 5,
                "markerfacecolor": face,
                "elinewidth": 0.9,
                "capsize": 2.5,
            }
            axes.errorbar(at, t.hours, yerr=reach, fmt=marker, label=name, **look)
            if t.num_seeds > 1:
                places = at + width * np.linspace(-0.3, 0.3, t.num_seeds)
                for place, hours, arrived in zip(places, t.spent_h, t.arrived, strict=True):
                    axes.plot(place, hours, **style.one_seed(arrived, "^"))
            name = None  # one entry in the legend
    axes.set_xticks(range(len(by_value)), list(by_value))
    axes.set_xlim(-0.6, len(by_value) - 0.4)
    axes.set_ylim(bottom=0)
    style.grid(axes, "y")


def key(times: list[Times]) -> list[tuple[Line2D, str]]:
    """The legend of the marks that are no policy's."""
    many, missed = any(t.num_seeds > 1 for t in times), not all(t.reached for t in times)
    entries = []
    if many:
        entries.append((Line2D([], [], **style.one_seed(True)), "one seed"))
        entries.append((Line2D([], [], color="black", marker="|", linewidth=0.9), "mean, 95 % interval"))
    if missed:
        look = {"marker": "o", "markersize": 5, "markerfacecolor": "white", "color": "black"}
        entries.append((Line2D([], [], linestyle="none", **look), "open: at least"))
    if many and missed:
        entries.append((Line2D([], [], **style.one_seed(False, "^")), "seed, not reached"))
    return entries
