"""Time-to-accuracy against energy, carbon and money.

A point is a configuration: means over n seeds up to the target accuracy, with 95 % confidence intervals (Student t),
or for up to three seeds with a dot for each.
Down and left is better; the faint line is the front, on which no other configuration is better in both, one for each
world of a study with such an axis. Where a seed
did not reach the target, the point is open: it stands at what was spent, and is not on the front. Carbon and money are
drawn where the runs know them ([carbon], [price]).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import Estimate, on_front
from hpctrip.base.text import aligned
from hpctrip.base.units import figures, unit_of
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.grouping import Group
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import TARGET, WHOLE_RUNS
from hpctrip.record.reader import Run
from hpctrip.sim.quantities import CARBON, COST, ENERGY, Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40
"""Largest number of points in a legible figure."""
SPREAD = 8
"""Largest ratio of quantities on a linear axis: beyond it the small ones would lie on each other."""


class Panel(NamedTuple):
    """A quantity that time is drawn against."""

    of: Quantity
    title: str
    scale: float
    """Number of the units of the title in that of its totals."""


def panels_of(runs: Sequence[Run]) -> list[Panel]:
    """The quantities that every round of all runs has. InputError where there are none, or the currencies differ."""
    currencies = sorted({str(run.setting("accounts.currency", "")) for run in runs})
    available = []
    titles = {ENERGY: "Energy ({})", CARBON: "Carbon ({} CO2)", COST: "Price ({})"}
    for quantity, title in titles.items():
        amounts = [run.rounds.get(quantity.column, pd.Series(np.nan)) for run in runs]
        if all(np.isfinite(each).all() for each in amounts):
            largest = max(abs(each.sum()) for each in amounts)
            factor, read = unit_of(largest, quantity.unit, ", ".join(currencies))
            available.append(Panel(quantity, title.format(read), quantity.total_unit / factor))
    if not available:
        problem = "have no energy in every round: some were imported, or made by an older hpctrip"
        raise InputError("the runs", problem, "make them again")
    if available[-1].of is COST and len(currencies) > 1:
        raise InputError("the runs", f"have costs in {', '.join(currencies)}", "give runs of one currency")
    return available


@figure(WHOLE_RUNS, TARGET)
def plot(runs: Sequence[Run], target: float | None = None) -> Drawing:
    """A panel for each quantity that the runs have, a point for each configuration."""
    target = reading.common_target(runs, target)
    groups, caption = grouping.compared(runs, MOST)
    panels = panels_of(runs)
    table = numbers(groups, panels, target)
    picture = style.figure(3.0, style.COLUMN_INCHES if len(panels) == 1 else style.PAGE_INCHES)
    for axes, panel in zip(picture.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        draw(axes, panel, table)
        draw_seeds(axes, panel, groups, target)
    picture.axes[0].set_ylabel(f"Simulated hours\nto {reading.percent(target)} accuracy")
    seeds = style.counts(list(table["num_seeds"]))
    style.finish(picture, f"{seeds}; {caption}{_notes(runs, panels, table)}")
    return Drawing(picture, table, _lines(table, panels))


def numbers(groups: Sequence[Group], panels: Sequence[Panel], target: float) -> pd.DataFrame:
    """A row for each group: time, and for every panel its mean, interval and whether it is on the front."""
    rows = []
    for group in groups:
        time = group.times(target)
        world = str(group.runs[0].meta.get("world", ""))
        row = {"label": group.label, "policy": group.policy, "world": world} | time.row()
        for panel in panels:
            used = Estimate.mean([spent(run, panel, target) for run in group.runs])
            half = used.high - used.value if time.reached else np.nan
            row |= {panel.of.total: used.value, f"{panel.of.total}_half_width": half}
        rows.append(row | {"time_half_width": time.mean.high - time.mean.value})
    table = pd.DataFrame(rows)
    hours = np.where(table["num_reached"] == table["num_seeds"], table["mean_h"], np.nan)
    for panel in panels:
        table[f"{panel.of.total}_on_front"] = False
        for world in table["world"].unique():
            own = (table["world"] == world).to_numpy()
            front = on_front(table.loc[own, panel.of.total].to_numpy(), hours[own])
            table.loc[own, f"{panel.of.total}_on_front"] = front
    return table if table["world"].any() else table.drop(columns="world")


def spent(run: Run, panel: Panel, target: float) -> float:
    """By a run up to the target, or in all where it did not get there, in the panel's unit."""
    reached_s = run.time_to(target)
    counted = run.rounds["clock_s"] <= (np.inf if np.isnan(reached_s) else reached_s)
    return float(run.rounds.loc[counted, panel.of.column].sum()) / panel.of.total_unit


def draw(axes: Axes, panel: Panel, table: pd.DataFrame) -> None:
    """The points of one panel, and the fronts behind them."""
    best = table[table[f"{panel.of.total}_on_front"]].sort_values(panel.of.total)
    label = "front: no other is better in both"
    for _, front in best.groupby("world") if "world" in table else [("", best)]:
        if len(front) > 1:  # a line of one point is not seen
            look = {"color": style.FAINT, "linewidth": 3, "label": label}
            axes.plot(front[panel.of.total], front["mean_h"], zorder=0, **look)
            label = ""
    for i, row in enumerate(table.itertuples()):
        look = style.point(i)
        reached = row.num_reached == row.num_seeds
        bars = {"xerr": getattr(row, f"{panel.of.total}_half_width"), "yerr": row.time_half_width}
        axes.errorbar(
            getattr(row, panel.of.total),
            row.mean_h,
            **(bars if np.isfinite(row.time_half_width) and style.has_whiskers(row.num_seeds) else {}),
            **look,
            linestyle="none",
            markersize=4.5,
            markerfacecolor=look["color"] if reached else "white",
            elinewidth=0.8,
            capsize=2,
            label=style.counted_name(row.label, row.num_seeds, 30) + ("" if reached else "*"),
        )
    axes.set_xlabel(panel.title)
    axes.margins(0.1)  # room for the marks at the edges
    least, most = table[panel.of.total].min(), table[panel.of.total].max()
    if least > 0 and most > SPREAD * least:
        style.log_axis(axes)
    else:
        axes.set_xlim(left=min(0.0, least))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * panel.scale:g}")
    axes.set_ylim(bottom=0)
    style.grid(axes, "both")


def draw_seeds(axes: Axes, panel: Panel, groups: Sequence[Group], target: float) -> None:
    """A dot for each seed where a mean has no whiskers."""
    for i, group in enumerate(groups):
        if len(group.runs) > 1 and not style.has_whiskers(len(group.runs)):
            times, colour = group.times(target), style.point(i)["color"]
            by_seed = sorted(group.runs, key=lambda run: run.meta["seed"])
            used = [spent(run, panel, target) for run in by_seed]
            axes.plot(used, times.spent_h, ".", color=colour, markersize=3, alpha=0.7, zorder=1)


def _notes(runs: Sequence[Run], panels: Sequence[Panel], table: pd.DataFrame) -> str:
    """The part of the heading about synthetic signals, intervals and open points."""
    named = [panel.of.signal for panel in panels if panel.of.signal]
    made_up = [name for name in named if any(name in run.meta["synthetic_signals"] for run in runs)]
    synthetic = f"; synthetic {' and '.join(made_up)}" if made_up else ""
    missed = (table["num_reached"] < table["num_seeds"]).any()
    has_bars = table["time_half_width"].notna() & style.has_whiskers(table["num_seeds"])
    if has_bars.any():
        synthetic += "; bars: 95 % intervals of the means"
    if (table["time_half_width"].notna() & ~has_bars).any():
        synthetic += "; dots: single seeds"
    return synthetic + ("; *: open, the target was not reached by every seed" if missed else "")


def _lines(table: pd.DataFrame, panels: Sequence[Panel]) -> list[str]:
    rows = []
    for row in table.to_dict("records"):
        values = [
            f"{figures(panel.scale * row[panel.of.total])}{' front' if row[f'{panel.of.total}_on_front'] else ''}"
            for panel in panels
        ]
        reached = f"{row['num_reached']}/{row['num_seeds']}"
        at_least = "> " if row["num_reached"] < row["num_seeds"] else ""
        rows.append((row["label"], f"{at_least}{row['mean_h']:.4g}", reached, *values))
    return aligned(("configuration", "hours", "reached", *(panel.title for panel in panels)), rows)
