"""Throughput against energy of what `tune` has tried.

TABLE.csv is its `trials.csv`. A point is a setting; up and right is better. The line is the front: of its settings no
other is better in both. Filled are those that were chosen; numbers stand for the rows of the table.
"""

from __future__ import annotations

import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import csv_table

NUMBERS = ("samples_per_second", "samples_per_joule")


@figure(csv_table(integers=("rounds",), numbers=NUMBERS, may_lack=True))
def plot(table: pd.DataFrame) -> Drawing:
    """One panel: samples per joule to the right, per second up. InputError where no joules were measured."""
    measured = table.assign(row=range(1, len(table) + 1)).dropna(subset=[*NUMBERS])
    if measured.empty:
        raise InputError("tuning", "no trial has joules", "see trials.csv for the throughputs")
    picture = style.figure(2.6)
    axes = picture.subplots()
    on_front = measured[measured["on_front"] == "true"].sort_values(NUMBERS[0])
    axes.plot(on_front[NUMBERS[1]], on_front[NUMBERS[0]], color=style.FAINT, linewidth=3, zorder=0)
    for row in measured.itertuples():
        place = row.samples_per_joule, row.samples_per_second
        axes.plot(*place, "o", color=style.BLUE, fillstyle="full" if row.best_by else "none", markersize=4)
        axes.annotate(str(row.row), place, (3, 3), textcoords="offset points", fontsize=6, color=style.QUIET)
    axes.set(xlabel="Samples per joule", ylabel="Samples per second")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    style.grid(axes, "both")
    style.heading(picture, "Measured; line: no other is better in both")
    head = ("setting", "samples/s", "samples/J", "best by")
    rows = []
    for row in measured.itertuples():
        rates = f"{row.samples_per_second:,.1f}", f"{row.samples_per_joule:.4g}"
        rows.append((f"{row.row} {row.setting}", *rates, row.best_by))
    return Drawing(picture, table, aligned(head, rows))
