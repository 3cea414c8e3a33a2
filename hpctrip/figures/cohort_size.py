"""Cohort size against simulated time.

One step curve for each run. Up to four configurations share a panel, each with a colour and dashes of its own. More get
a panel each, with all others grey behind it. With one powertrip and one static run, the area by which the static cohort
is larger while both train is shaded: its site overhead.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS
from hpctrip.record.reader import Run


@figure(RUNS)
def plot(runs: Sequence[Run]) -> Drawing:
    """The cohort size of every run."""
    groups = grouping.grouped(runs, style.MOST_PANELS)
    unlike = grouping.warn_of_differences(groups)
    picture, places = style.places_of(groups)
    steps = [reading.cohort_steps(run.rounds) for run in runs]
    others = style.draw_behind(places, steps, drawstyle="steps-post")
    rows, tables = [], []
    for group, (axes, look, name) in zip(groups, places, strict=True):
        for number, run in enumerate(group.runs):
            hours, k = reading.cohort_steps(run.rounds)
            axes.step(hours, k, where="post", label=None if number else name, **look)
            end = end_mark(run)
            axes.plot(hours[-1], k[-1], end, color=look["color"], markersize=4, clip_on=False)
            mean = np.average(k[:-1], weights=np.diff(hours))
            sizes = str(k[0]), str(k.max()), str(k[-1]), f"{mean:.1f}"
            seed = run.meta["seed"]
            rows.append((group.label, str(seed), *sizes, f"{hours[-1]:.3g}", "yes" if end == "o" else "no"))
            named = {"label": group.label, "seed": seed, "round": run.rounds["round"]}
            tables.append(pd.DataFrame(named | {"start_h": hours[:-1], "end_h": hours[1:], "k": k[:-1]}))
    head = ("policy", "seed", "first k", "largest k", "last k", "mean k over time", "hours", "target reached")
    lines = aligned(head, rows)

    by_policy = {run.meta["policy"]: run for run in runs}
    if len(runs) == 2 and set(by_policy) == {"powertrip", "static"}:
        area = shade_overhead(places[0].axes, by_policy["static"].rounds, by_policy["powertrip"].rounds)
        lines.append(f"site overhead of static over powertrip: {area:.3g} site-hours")
    ends = {"o": "end: target reached", "x": "end: target not reached"}
    for marker in sorted({end_mark(run) for run in runs}):
        places[0].axes.plot([], [], marker, color="black", markersize=4, label=ends[marker])
    style.whole_numbers(places[0].axes, "y")
    style.label_panels(picture, places, "Simulated time (hours)", "Sites in the cohort, k")
    many = "; a line for every seed" if len(runs) > len(groups) else ""
    style.heading(picture, reading.provenance(runs, unlike) + many + others)
    style.legend_below(picture)
    return Drawing(picture, pd.concat(tables, ignore_index=True), lines)


def end_mark(run: Run) -> str:
    """The mark at the end of a run: whether it reached its target."""
    return "o" if np.isfinite(run.time_to_accuracy_s) else "x"


def shade_overhead(axes: Axes, static: pd.DataFrame, powertrip: pd.DataFrame) -> float:
    """Shade where the static cohort is the larger one; its area in site-hours."""
    static_h, static_k = reading.cohort_steps(static)
    dynamic_h, dynamic_k = reading.cohort_steps(powertrip)
    hours = np.union1d(static_h, dynamic_h)
    hours = hours[hours <= min(static_h[-1], dynamic_h[-1])]
    lower = dynamic_k[np.searchsorted(dynamic_h, hours, side="right") - 1]
    upper = np.maximum(lower, static_k[np.searchsorted(static_h, hours, side="right") - 1])
    look = {"step": "post", "color": style.ORANGE, "alpha": 0.3, "linewidth": 0}
    axes.fill_between(hours, lower, upper, label="site overhead", **look)
    return float(np.sum((upper - lower)[:-1] * np.diff(hours)))
