"""Throughput against energy of the settings that `tune` has tried.

TABLE.csv is its `trials.csv`. A point is a setting; up and right is better. The line is the front: of its settings no
other is better in both. Filled are those that were chosen; numbers stand for the rows of the table.
"""

from __future__ import annotations

import pandas as pd

from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.sources import csv_table

NUMBERS = ("samples_per_second", "samples_per_joule")


@figure(csv_table(integers=("rounds",), numbers=NUMBERS))
def plot(table: pd.DataFrame) -> Drawing:
    """One panel: joules to the right, seconds up."""
    picture = style.figure(2.6)
    axes = picture.subplots()
    on_front = table[table["on_front"] == "true"].sort_values(NUMBERS[0])
    axes.plot(on_front[NUMBERS[1]], on_front[NUMBERS[0]], color=style.FAINT, linewidth=3, zorder=0)
    for number, row in enumerate(table.itertuples(), 1):
        place = row.samples_per_joule, row.samples_per_second
        axes.plot(*place, "o", color=style.BLUE, fillstyle="full" if row.best_by else "none", markersize=4)
        axes.annotate(str(number), place, (3, 3), textcoords="offset points", fontsize=6, color=style.QUIET)
    axes.set(xlabel="Samples per joule", ylabel="Samples per second")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    style.grid(axes, "both")
    style.heading(picture, "Measured while training; line: no other setting is better in both")
    cells = [
        (
            f"{number} {row.setting}",
            f"{row.samples_per_second:,.1f}",
            f"{row.samples_per_joule:.4g}",
            row.best_by,
        )
        for number, row in enumerate(table.itertuples(), 1)
    ]
    return Drawing(picture, table, aligned(("setting", "samples/s", "samples/J", "best by"), cells))
