"""Figures of tables of measurements: scaling over hosts, and the settings that `tune` has tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.text import aligned
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import csv_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COUNTS = ("hosts", "sites", "num_rounds")
SECONDS = ("round_q1_s", "round_s", "round_q3_s", *(f"{phase}_s" for phase in style.PHASES))
KINDS = ("strong", "weak")


@figure(csv_table(texts=("kind",), integers=COUNTS, numbers=(*SECONDS, "efficiency")))
def scaling(table: pd.DataFrame) -> Drawing:
    """Strong and weak scaling over hosts.

    TABLE.csv is what `benchmarks/scaling.py` of the source tree writes. Points are medians over n rounds, whiskers
    their quartiles; wall time is measured, on the machine where the benchmark ran. Dashed: what it would be if hosts
    cost nothing. Strong scaling: the same sites on more hosts; weak: a fixed number of sites on every host. On several
    hosts recording has no share of its own: rank 0 records while they train.
    """
    if not table["kind"].isin(KINDS).all():
        hint = "give what benchmarks/scaling.py of the source tree writes"
        raise InputError("the table: kind", f"is neither {' nor '.join(KINDS)} everywhere", hint)
    kinds = [(kind, table[table["kind"] == kind].sort_values("hosts")) for kind in KINDS]
    kinds = [(kind, rows) for kind, rows in kinds if len(rows)]
    picture = style.figure(3.6, style.PAGE_INCHES if len(kinds) == 2 else style.COLUMN_INCHES)
    panels = picture.subplots(2, len(kinds), squeeze=False, sharex="col", height_ratios=(1.3, 1))
    for (kind, rows), (above, below) in zip(kinds, panels.T, strict=True):
        seconds(above, kind, rows)
        phases(below, rows)
    panels[0, 0].set_ylabel("Wall seconds\na round")
    panels[1, 0].set_ylabel("Share of\nthe round (%)")
    n = sorted({*table["num_rounds"]})
    counts = f"n = {' to '.join(map(str, dict.fromkeys((n[0], n[-1]))))} rounds a point"
    measured = f"Measured wall time; medians and quartiles, {counts}"
    style.finish(picture, f"{measured}; percentages: parallel efficiency")

    cells = []
    for row in pd.concat([rows for _, rows in kinds]).itertuples():
        quartiles = f"{row.round_q1_s:.3g} to {row.round_q3_s:.3g}"
        times = f"{row.round_s:.3g}", quartiles, str(row.num_rounds), f"{row.efficiency:.2f}"
        shares = (f"{getattr(row, f'{phase}_s') / row.round_s:.0%}" for phase in style.PHASES)
        cells.append((row.kind, str(row.hosts), str(row.sites), *times, *shares))
    head = ("scaling", "hosts", "sites", "median round s", "quartiles", "n", "efficiency", *style.PHASES)
    return Drawing(picture, table, aligned(head, cells))


def seconds(axes: Axes, kind: str, rows: pd.DataFrame) -> None:
    """Seconds a round against the number of hosts, with what would be ideal."""
    places, median = np.arange(len(rows)), rows["round_s"].to_numpy()
    reach = np.abs([median - rows["round_q1_s"], rows["round_q3_s"] - median])
    look = {"color": style.BLUE, "markersize": 4, "capsize": 2.5, "elinewidth": 0.9}
    axes.errorbar(places, median, yerr=reach, fmt="o-", label="median, quartiles", **look)
    fewer = rows["hosts"].to_numpy()[0] / rows["hosts"].to_numpy()
    ideal = median[0] * (fewer if kind == "strong" else np.ones(len(rows)))
    axes.plot(places, ideal, "--", color=style.GREY, linewidth=0.9, label="ideal")
    axes.set_ylim(0, 1.2 * rows["round_q3_s"].max())
    axes.set_xlim(-0.6, len(rows) - 0.4)
    title = "the same sites on more hosts" if kind == "strong" else "as many sites on every host"
    axes.set_title(f"{kind.capitalize()} scaling: {title}", color="black")
    labelled = zip(places, rows["round_q3_s"], rows["efficiency"], strict=True)
    for place, value, efficiency in list(labelled)[style.every_nth(len(rows))]:
        look = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "fontsize": 6}
        axes.annotate(f"{100 * efficiency:.0f} %", (place, value), color=style.QUIET, **look)
    style.grid(axes, "y")


def phases(axes: Axes, rows: pd.DataFrame) -> None:
    """Shares of the phases in the median round, in percent; above them what no phase claims."""
    from matplotlib.ticker import NullLocator

    places, bottom = np.arange(len(rows)), np.zeros(len(rows))
    for phase, (colour, hatch) in style.PHASES.items():
        share = 100 * (rows[f"{phase}_s"] / rows["round_s"]).to_numpy()
        if phase == "record":
            share[rows["hosts"] > 1] = 0
        look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.bar(places, share, 0.6, bottom=bottom, label=phase, **look)
        bottom += share
    rest = np.maximum(100 - bottom, 0)
    axes.bar(places, rest, 0.6, bottom=bottom, color="#E5E5E5", label="no phase's")
    names = [f"{row.hosts}\n{row.sites}" for row in rows.itertuples()]
    shown = style.every_nth(len(rows))
    axes.set_xticks(places[shown], names[shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("Hosts, and sites in all")


RATES = ("samples_per_second", "samples_per_joule")


@figure(csv_table(integers=("rounds",), numbers=RATES, may_lack=True))
def tuning(table: pd.DataFrame) -> Drawing:
    """Throughput against energy of the trials of `tune`.

    TABLE.csv is its `trials.csv`. A point is a setting; up and right is better. The line is the front: of its settings
    no other is better in both. Filled are those that were chosen; numbers stand for the rows of the table, of more than
    ten only those on the front and the chosen ones.
    """
    measured = table.assign(row=range(1, len(table) + 1)).dropna(subset=[*RATES])
    if measured.empty:
        raise InputError("tuning", "no trial has joules", "see trials.csv for the throughputs")
    picture = style.figure(2.6)
    axes = picture.subplots()
    on_front = measured[measured["on_front"] == "true"].sort_values(RATES[0])
    axes.plot(on_front[RATES[1]], on_front[RATES[0]], color=style.FAINT, linewidth=3, zorder=0)
    for row in measured.itertuples():
        place = row.samples_per_joule, row.samples_per_second
        axes.plot(*place, "o", color=style.BLUE, fillstyle="full" if row.best_by else "none", markersize=4)
        if len(measured) > 10 and not (row.best_by or row.on_front == "true"):
            continue  # the table has all numbers
        axes.annotate(str(row.row), place, (3, 3), textcoords="offset points", fontsize=6, color=style.QUIET)
    axes.set(xlabel="Samples per joule", ylabel="Samples per second")
    axes.margins(0.1)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    style.grid(axes, "both")
    style.finish(picture, "Measured; line: no other is better in both")
    head = ("setting", "samples/s", "samples/J", "best by")
    rows = []
    for row in measured.itertuples():
        rates = f"{row.samples_per_second:,.1f}", f"{row.samples_per_joule:.4g}"
        rows.append((f"{row.row} {row.setting}", *rates, row.best_by))
    return Drawing(picture, table, aligned(head, rows))
