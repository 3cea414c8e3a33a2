"""Power of single domains over time.

TRACES is a folder of cell*.csv.gz files as Google publishes them (PowerData2019), one such file, or a quoted pattern.
Without a DOMAIN, four are drawn, of as many cells as there are. The legend names the lines from the highest mean to the
lowest.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.base.text import printable, unknown_name
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import reading, style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import TRACES

DAY_S = 24 * HOUR_S


@figure(
    TRACES,
    click.Argument(["more"], nargs=-1, metavar="[DOMAIN]..."),
    click.Option(["--domains"], multiple=True, metavar="DOMAIN", help="Domain to draw, as DOMAIN."),
    click.Option(["--days"], type=float, default=7, show_default=True, help="Days to draw, from the start."),
)
def plot(
    traces: pd.DataFrame, domains: Sequence[str] = (), more: Sequence[str] = (), days: float = 7
) -> Drawing:
    """One line for each domain."""
    if not days > 0:
        raise InputError("--days", f"{days:g} is not above 0")
    chosen = list(dict.fromkeys([*domains, *more])) or in_turn(traces)[:4]
    available = list(traces["domain"].unique())
    for name in chosen:
        if name not in available:
            raise InputError("--domains", f"no domain {printable(name)!r}", unknown_name(name, available))
    if len(chosen) > style.MOST_LINES:
        problem = f"{len(chosen)} lines cannot be told apart"
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
        look = style.line(i) | {"linewidth": 0.8}
        axes.step(
            used["time_s"] / DAY_S, 100 * used["utilisation"], where="post", label=printable(name, 40), **look
        )
    axes.set_xlabel("Time (days)")
    axes.set_ylabel(f"{traces.attrs['column'].capitalize()} power\nutilisation (%)")
    axes.set_xlim(left=0)
    style.heading(picture, reading.trace_title(drawn))
    style.grid(axes, "y")
    style.legend_below(picture, ncols=1)  # from the top line to the lowest one

    rows = [
        (printable(name, 40), f"{row[0]:.0f}", *(f"{100 * value:.1f}" for value in row[1:]))
        for name, *row in numbers.itertuples()
    ]
    head = ("domain", "samples", "mean %", "min %", "max %", "largest step %")
    return Drawing(picture, drawn.reset_index(drop=True), aligned(head, rows))


def in_turn(traces: pd.DataFrame) -> list[str]:
    """All domains: the first of every cell, then the second of every cell, and so on."""
    domains = traces.drop_duplicates("domain")
    place = domains.groupby("cell").cumcount()
    return list(domains["domain"].iloc[place.argsort(kind="stable")])
