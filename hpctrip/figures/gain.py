"""Accuracy that larger cohorts gain, round by round.

Lines are means over seeds of the accuracy of k sites less that of the smallest k with the same seed, round by round;
bands are 95 % confidence intervals (Student t). A line ends with the first of its seeds that ended: those that are left
are not the same draw. Rounds without an evaluation of both are left out. Where there are more lines than can be told
apart, those of the largest k and of about half, a quarter, ... of it are drawn; the numbers are of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.base.stats import mean_interval
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS
from hpctrip.figures.sweep import SWEPT, fixed_cohorts, of_each_k
from hpctrip.record.reader import Run

EARLY = 20
"""Number of rounds whose mean gain is printed apart from that of later ones."""


@figure(RUNS, SWEPT)
def plot(runs: Sequence[Run], policy: str = "static") -> Drawing:
    """The gain of every k over the smallest."""
    swept, lines = fixed_cohorts(runs, policy)
    unlike = grouping.warn_of_differences(grouping.grouped(swept))
    first, *others = of_each_k(swept).items()
    if not others:
        raise InputError("the runs", f"are all of k = {first[0]}", "give those of several k")
    shown = style.told_apart([k for k, _ in others])

    picture = style.figure(2.8)
    axes = picture.subplots()
    axes.axhline(0, color="black", linewidth=0.8)
    rows, tables = [], []
    for k, group in others:
        gains = gain(first[1].runs, group.runs)
        if k in shown:
            i = shown.index(k)
            name = style.counted_name(f"k = {k}", gains.attrs["n"], 30)
            band = {"alpha": 0.2, "linewidth": 0, "color": style.CYCLE[i]}
            axes.fill_between(gains.index, gains["low"], gains["high"], **band)
            axes.plot(gains.index, gains["gain_points"], label=name, **style.line(i))
        n, points = gains.attrs["n"], gains["gain_points"]
        means = points.loc[:EARLY].mean(), points.loc[EARLY + 1 :].mean()
        cells = [f"{mean:+.3g}" if np.isfinite(mean) else "-" for mean in means]
        rows.append((str(k), str(n), str(len(gains)), *cells))
        tables.append(gains.reset_index().assign(k=k, n=n))
    axes.set(xlabel="Round", ylabel=f"Accuracy over that of k = {first[0]}\n(percentage points)")
    style.whole_numbers(axes, "x")
    style.grid(axes, "y")
    style.heading(
        picture, f"{reading.provenance(swept, unlike)}; bands: 95 % intervals of means over n seeds"
    )
    style.legend_below(picture)
    head = ("k", "n", "rounds", f"mean gain, rounds 1 to {EARLY}", "mean gain later")
    return Drawing(picture, pd.concat(tables, ignore_index=True), [*lines, *aligned(head, rows)])


def gain(base: Sequence[Run], runs: Sequence[Run]) -> pd.DataFrame:
    """Percentage points over the same seed of `base`, by round: gain_points, low, high; attribute `n`: the seeds that
    both have. The bounds are NaN for one seed. Raises InputError where no seed is common."""
    of_base = {run.meta["seed"]: run for run in base}
    both = [(of_base[run.meta["seed"]], run) for run in runs if run.meta["seed"] in of_base]
    if not both:
        raise InputError(
            str(runs[0].path), "has no seed in common with the smallest k", "give the same seeds"
        )
    curves = [
        100 * (run.rounds.set_index("round")["accuracy"] - other.rounds.set_index("round")["accuracy"])
        for other, run in both
    ]
    points = pd.concat(curves, axis=1, join="inner").dropna()
    mean, half = mean_interval(points.to_numpy().T)
    gains = pd.DataFrame({"gain_points": mean, "low": mean - half, "high": mean + half}, index=points.index)
    gains.attrs["n"] = len(both)
    return gains
