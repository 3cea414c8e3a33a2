"""One run on one page.

How accuracy came about, what it cost, which sites did it, where the wall time went. The band around the accuracy is
the 95 % interval that so many test samples leave (Wilson); another seed may differ by more. "Reached" is the first
evaluation at or above the target, with its interval.
"""

from __future__ import annotations

import textwrap

import numpy as np
import pandas as pd
from matplotlib.figure import Figure, SubFigure

from hpctrip.base.stats import wilson
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common import run_panels as panels
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import EACH_RUN
from hpctrip.record.reader import Run

PAGE_INCHES = (9.2, 10.5)
"""Height and width."""


@figure(EACH_RUN)
def plot(run: Run) -> Drawing:
    """The page of one run."""
    return Drawing(page_of(run), table_of(run), lines_of(run))


def page_of(run: Run) -> Figure:
    """Three rows of two panels below the facts; power over time only where power changes."""
    page = style.figure(*PAGE_INCHES)
    page.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    head, body, wall, foot = page.subfigures(4, 1, height_ratios=(0.13, 1, 0.13, 0.04))
    header(head, run)
    varying = panels.power_over_time(run)
    names = [["accuracy", "loss"], ["cohort", "time"], ["sites", "sites" if varying is None else "power"]]
    axes = body.subplot_mosaic(names, width_ratios=(1.1, 1))
    panels.accuracy(axes["accuracy"], run)
    panels.loss(axes["loss"], run)
    panels.cohort(axes["cohort"], run)
    panels.round_times(axes["time"], run)
    panels.sites(axes["sites"], run)
    if varying is not None:
        panels.power(axes["power"], varying)
    panels.wall_time(wall.subplots(), run)
    foot.text(0.012, 0.3, origin(run), fontsize=7, color=style.QUIET)
    return page


def facts(run: Run) -> list[str]:
    """The lines that say what this run was; synthetic data and power are called so."""
    meta = run.meta
    prefix = "synthetic " if meta["synthetic_data"] and "synthetic" not in meta["data_source"].lower() else ""
    how = (
        f"{'synthetic' if meta['synthetic_power'] else 'real'} power",
        f"policy {grouping.grouped([run])[0].label}",
        f"seed {meta['seed']}",
        f"{reading.counted(meta['num_ranks'], 'rank')}, {meta['transport']}",
        f"engine {meta['engine']}",
    )
    return [f"{prefix}data: {meta['data_source'] or 'source not recorded'}", " · ".join(how)]


def origin(run: Run) -> str:
    """By which program the run was made, when, and what model came out."""
    meta = run.meta
    commit = f", commit {meta['git_commit'][:12]}" if meta["git_commit"] else ""
    changed = " with changes" if meta["git_dirty"] else ""
    parts = (
        f"hpctrip {meta['hpctrip_version'] or 'of unknown version'}{commit}{changed}",
        f"model digest {meta['params_digest'][:16] or 'not known'}",
        f"written {meta['updated_utc']}" if meta["updated_utc"] else "",
        printable(run.path.name, 60),
    )
    return printable(" · ".join(filter(None, parts)), 200)


def outcome(run: Run) -> str:
    """How the run ended: its time-to-accuracy, or how far it got."""
    target, reached_s = run.meta["target_accuracy"], run.time_to_accuracy_s
    if np.isfinite(reached_s):
        return f"{reading.percent(target)} accuracy after {reached_s / HOUR_S:.3g} simulated hours"
    spent = f"{run.rounds['clock_s'].iloc[-1] / HOUR_S:.3g} simulated hours"
    return f"best accuracy {reading.percent(run.rounds['accuracy'].max())} in {spent}"


def reached(run: Run) -> str:
    """The evaluation that first reached the target, with its interval; empty where none did."""
    rows = run.rounds[run.rounds["clock_s"] == run.time_to_accuracy_s]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    low, high = wilson(row["eval_correct"], row["eval_seen"])
    interval = (
        f", 95 % interval {reading.percent(low)} to {reading.percent(high)}" if np.isfinite(low) else ""
    )
    sure = (
        ""
        if not np.isfinite(low) or low >= run.meta["target_accuracy"]
        else "; the interval holds the target"
    )
    return (
        f"first evaluation at or above it: {reading.percent(row['accuracy'])} after round {row['round']:.0f} "
        f"(n = {row['eval_seen']:,.0f} test samples{interval}{sure})"
    )


def ending(run: Run) -> str:
    """Status, rounds and the rule that ended it."""
    reason = run.meta["stop_reason"]
    return f"{run.meta['status']} after {reading.counted(len(run.rounds), 'round')}" + (
        f": {reason}" if reason else ""
    )


def header(panel: SubFigure, run: Run) -> None:
    """Name, outcome and facts, over the whole width."""
    data, how = (printable(line) for line in facts(run))
    small = {"fontsize": 8, "va": "top", "color": "#333333"}
    name = textwrap.shorten(printable(run.meta["scenario"], 60), 40, placeholder="…") or "unnamed"
    panel.text(0.012, 0.95, name, fontsize=15, weight="bold", va="top")
    panel.text(0.988, 0.95, outcome(run), fontsize=12, va="top", ha="right", color=style.BLUE)
    panel.text(0.012, 0.60, textwrap.shorten(data, 170, placeholder="…"), **small)
    panel.text(0.012, 0.36, textwrap.shorten(how, 110, placeholder="…"), **small)
    ended = textwrap.shorten(printable(ending(run)), 64, placeholder="…")
    panel.text(0.988, 0.36, ended, ha="right", **small)
    panel.text(0.012, 0.12, reached(run), **small)


def table_of(run: Run) -> pd.DataFrame:
    """Every number of the page: one row a point, with the panel and the series that it is of."""
    rounds, sites = run.rounds, run.sites
    hours = rounds["clock_s"] / HOUR_S
    start_h = rounds["clock_start_s"] / HOUR_S
    low, high = wilson(rounds["eval_correct"].to_numpy(), rounds["eval_seen"].to_numpy())
    parts = [
        ("accuracy", "held-out", hours, rounds["accuracy"], low, high, rounds["eval_seen"]),
        ("loss", "held-out", hours, rounds["eval_loss"]),
        ("loss", "training", hours, rounds["train_loss"]),
        ("cohort", "sites", start_h, rounds["num_sites"]),
        ("cohort", "vote", start_h, rounds["voted_num_sites"]),
        ("time", "straggler computing, minutes", rounds["round"], rounds["straggler_compute_s"] / 60),
        ("time", "straggler communicating, minutes", rounds["round"], rounds["straggler_comm_s"] / 60),
        ("time", "round, minutes", rounds["round"], rounds["makespan_s"] / 60),
        ("sites", "power at the start", panels.miles(sites), sites["power_fraction"]),
        ("sites", "samples", panels.miles(sites), sites["num_samples"]),
        ("sites", "share of the rounds", panels.miles(sites), panels.chosen(run)),
    ]
    if (varying := panels.power_over_time(run)) is not None:
        parts.append(
            (
                "power",
                "cohort",
                varying["hours"],
                varying["mean"],
                varying["min"],
                varying["max"],
                varying["n"],
            )
        )
    tables = []
    for panel, series, *columns in parts:
        named = dict(zip(("x", "y", "low", "high", "n"), map(np.asarray, columns), strict=False))
        tables.append(pd.DataFrame({"panel": panel, "series": series} | named))
    wall = pd.DataFrame(
        [{"panel": "wall time", "series": name, "y": s} for name, s, *_ in panels.wall_parts(run)]
    )
    return pd.concat([*tables, wall], ignore_index=True)


def lines_of(run: Run) -> list[str]:
    """The page's numbers in words."""
    rounds, k = run.rounds, run.rounds["num_sites"]
    hours = {name: rounds[f"straggler_{name}_s"].sum() / HOUR_S for name in ("compute", "comm")}
    data, how = facts(run)
    texts = {
        "run": f"{run.meta['scenario']}, {ending(run)}",
        "outcome": outcome(run),
        "reached": reached(run) or "no",
        "data": data.removeprefix("data: "),
        "how": " ".join(how.split()),
        "cohort": f"{k.iloc[0]} sites first, {k.max()} largest, {k.iloc[-1]} last, of {len(run.sites)}",
        "stragglers": f"{hours['compute']:.3g} h computing, {hours['comm']:.3g} h communicating",
        "wall time": ", ".join(f"{name} {seconds:.3g} s" for name, seconds, *_ in panels.wall_parts(run))
        + f"; {panels.wall_note(run)}",
        "made by": origin(run),
    }
    return [f"{name:<12}{printable(text)}" for name, text in texts.items()]
