"""Figures of power traces: utilisation of every cell, and of single domains over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.text import aligned, counted, unknown_name
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import TRACES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DAY_S = 24 * HOUR_S


@figure(TRACES)
def power_utilisation(traces: pd.DataFrame) -> Drawing:
    """Power utilisation of every cell of a trace.

    Bars are means over the cell's domains and all times; whiskers reach from the lowest to the highest single sample of
    any of its domains. They are a range, not an interval of confidence.

    TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted
    pattern.
    """
    cells = traces.groupby("cell").agg(
        num_domains=("domain", "nunique"),
        num_samples=("utilisation", "size"),
        mean=("utilisation", "mean"),
        min=("utilisation", "min"),
        max=("utilisation", "max"),
    )
    cells["mean_spare"] = 1 - cells["mean"]

    picture = style.figure(2.4, max(style.COLUMN_INCHES, 0.6 + 0.22 * len(cells)))
    axes = picture.subplots()
    reach = np.array([cells["mean"] - cells["min"], cells["max"] - cells["mean"]])
    reach = 100 * reach.clip(min=0)  # the mean of equal values may miss them by one rounding
    places = np.arange(len(cells))
    axes.bar(places, 100 * cells["mean"], 0.65, color=style.SKY, label="mean")
    minutes = np.median(np.diff(np.unique(traces["time_s"]))) / 60
    look = {"fmt": "none", "color": "black", "capsize": 2, "elinewidth": 0.8}
    name = f"lowest to highest {minutes:.3g}-minute sample"
    axes.errorbar(places, 100 * cells["mean"], yerr=reach, label=name, **look)
    axes.set_xticks(places, [f"{name}\n{size}" for name, size in cells["num_domains"].items()])
    axes.margins(x=max(0.02, 0.5 / len(cells)))
    axes.set_ylim(0, 100)
    axes.set_xlabel("Cell, and its number of power domains")
    finish(axes, traces, traces)

    rows = [
        (str(cell), str(domains), *(f"{value:.3f}" for value in row))
        for cell, domains, _, *row in cells.itertuples()
    ]
    low, high = cells["mean"].min(), cells["mean"].max()
    lines = [
        *aligned(("cell", "domains", "mean", "min", "max", "mean spare"), rows),
        f"mean utilisation of {counted(len(cells), 'cell')}: {low:.1%} to {high:.1%}",
    ]
    return Drawing(picture, cells.reset_index(), lines)


@figure(
    TRACES,
    click.Option(["--domains"], multiple=True, metavar="DOMAIN", help="Domain to draw; may be repeated."),
    click.Option(["--days"], type=float, default=7, show_default=True, help="Days to draw, from the start."),
)
def power_over_time(traces: pd.DataFrame, domains: Sequence[str] = (), days: float = 7) -> Drawing:
    """Power of single domains over time.

    TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted
    pattern. Without --domains, four are drawn, of as many cells as there are. The legend names the lines from the
    highest mean to the lowest.
    """
    if not days > 0:
        raise InputError("--days", f"{days:g} is not above 0")
    chosen = list(dict.fromkeys(domains)) or in_turn(traces)[:4]
    available = list(traces["domain"].unique())
    for name in chosen:
        if name not in available:
            raise InputError("--domains", f"no domain {name!r}", unknown_name(name, available))
    if len(chosen) > style.MOST_LINES:
        problem = f"{len(chosen)} lines cannot be distinguished"
        raise InputError("--domains", problem, f"name {style.MOST_LINES} at most")
    drawn = traces[traces["domain"].isin(chosen) & (traces["time_s"] < days * DAY_S)]
    numbers = drawn.groupby("domain")["utilisation"].agg(
        num_samples="size", mean="mean", min="min", max="max", largest_step=lambda u: u.diff().abs().max()
    )
    numbers = numbers.sort_values("mean", ascending=False, kind="stable")

    picture = style.figure(2.3)
    axes = picture.subplots()
    for i, name in enumerate(numbers.index):
        used = drawn[drawn["domain"] == name]
        look = style.line(i) | {"linewidth": 0.8, "where": "post", "label": name}
        axes.step(used["time_s"] / DAY_S, 100 * used["utilisation"], **look)
    axes.set_xlabel("Time (days)")
    axes.set_xlim(left=0)
    finish(axes, traces, drawn, ncols=1)  # from the top line to the lowest one

    rows = [
        (name, f"{row[0]:.0f}", *(f"{100 * value:.1f}" for value in row[1:]))
        for name, *row in numbers.itertuples()
    ]
    head = ("domain", "samples", "mean %", "min %", "max %", "largest step %")
    return Drawing(picture, drawn.reset_index(drop=True), aligned(head, rows))


def finish(axes: Axes, traces: pd.DataFrame, drawn: pd.DataFrame, ncols: int = 0) -> None:
    """Name the axis of utilisation, and describe the traces drawn; synthetic ones are called so."""
    axes.set_ylabel(f"{traces.attrs['column'].capitalize()} power\nutilisation (%)")
    style.grid(axes, "y")
    days = (drawn["time_s"].max() - drawn["time_s"].min()) / DAY_S
    size = ", ".join(counted(drawn[name].nunique(), name) for name in ("cell", "domain"))
    kind = "Synthetic" if drawn.attrs["synthetic"] else "Recorded"
    style.finish(axes.figure, f"{kind} traces: {size}, {days:.3g} days", ncols)


def in_turn(traces: pd.DataFrame) -> list[str]:
    """All domains: the first of every cell, then the second of every cell, and so on."""
    domains = traces.drop_duplicates("domain")
    place = domains.groupby("cell").cumcount()
    return list(domains["domain"].iloc[place.argsort(kind="stable")])
