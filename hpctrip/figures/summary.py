"""One run on one page.

How accuracy came about, what it cost, which sites did it, where the wall time went. The band around the accuracy is
the 95 % interval that so many test samples leave (Wilson); another seed may differ by more. "Reached" is the first
evaluation at or above the target, with its interval.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.stats import wilson
from hpctrip.base.text import counted, printable
from hpctrip.base.units import HOUR_S, MILE_M
from hpctrip.figures.common import grouping, reading, style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import EACH_RUN
from hpctrip.record.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

PAGE_INCHES = (9.2, 10.5)
"""Height and width."""
ABOVE = {"loc": "lower right", "bbox_to_anchor": (1, 0.985), "handlelength": 1.5, "borderaxespad": 0}
"""The place of a legend: right of the panel's title, over no data."""


@figure(EACH_RUN)
def plot(run: Run) -> Drawing:
    """The page of one run."""
    return Drawing(page_of(run), table_of(run), lines_of(run))


def page_of(run: Run) -> Figure:
    """Three rows of two panels below the facts; power over time only where power changes, and wall time where it was
    measured: the rounds of the cache took none."""
    page = style.figure(*PAGE_INCHES)
    page.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    is_timed = run.rounds["wall_s"].sum() > 0
    heights = (0.13, 1, 0.13, 0.04) if is_timed else (0.13, 1, 0.04)
    head, body, *wall, foot = page.subfigures(len(heights), 1, height_ratios=heights)
    header(head, run)
    varying = power_over_time(run)
    names = [["accuracy", "loss"], ["cohort", "time"], ["sites", "sites" if varying is None else "power"]]
    axes = body.subplot_mosaic(names, width_ratios=(1.1, 1))
    panels = {"accuracy": accuracy, "loss": loss, "cohort": cohort, "time": round_times, "sites": sites}
    for name, draw in panels.items():
        draw(axes[name], run)
    if varying is not None:
        power(axes["power"], varying)
    if wall:
        wall_time(wall[0].subplots(), run)
    foot.text(0.012, 0.3, origin(run), fontsize=7, color=style.QUIET)
    return page


def facts(run: Run) -> list[str]:
    """The lines that say what this run was; synthetic data and power are called so."""
    meta = run.meta
    prefix = "synthetic " if meta["synthetic_data"] and "synthetic" not in meta["data_source"].lower() else ""
    how = (
        "synthetic power" if meta["synthetic_power"] else reading.power([run]),
        f"policy {grouping.grouped([run])[0].label}",
        f"seed {meta['seed']}",
        f"{counted(meta['num_ranks'], 'rank')}, {meta['transport']}",
        f"engine {meta['engine']}",
    )
    return [f"{prefix}data: {meta['data_source'] or 'source not recorded'}", " · ".join(how)]


def origin(run: Run) -> str:
    """Version of the program that made the run, digest of the model, time and file."""
    meta = run.meta
    commit = f", commit {meta['git_commit'][:12]}" if meta["git_commit"] else ""
    changed = " with changes" if meta["git_dirty"] else ""
    parts = (
        f"hpctrip {meta['hpctrip_version'] or 'of unknown version'}{commit}{changed}",
        f"model digest {meta['params_digest'][:16] or 'not known'}",
        f"written {meta['updated_utc']}" if meta["updated_utc"] else "",
        printable(run.path.name, 60),
    )
    return " · ".join(filter(None, parts))


def outcome(run: Run) -> str:
    """The time-to-accuracy of the run, or the accuracy that it reached."""
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
    sure = "; the interval holds the target" if low < run.meta["target_accuracy"] else ""
    return (
        f"first evaluation at or above it: {reading.percent(row['accuracy'])} after round {row['round']:.0f} "
        f"(n = {row['eval_seen']:,.0f} test samples{interval}{sure})"
    )


def ending(run: Run) -> str:
    """Status, rounds and the rule that ended it."""
    reason = f": {run.meta['stop_reason']}" if run.meta["stop_reason"] else ""
    return f"{run.meta['status']} after {counted(len(run.rounds), 'round')}{reason}"


def header(panel: SubFigure, run: Run) -> None:
    """Name, outcome and facts, over the whole width."""
    data, how = facts(run)
    small = {"fontsize": 8, "va": "top", "color": "#333333"}
    name = _short(run.meta["scenario"], 40) or "unnamed"
    panel.text(0.012, 0.95, name, fontsize=15, weight="bold", va="top")
    panel.text(0.988, 0.95, outcome(run), fontsize=12, va="top", ha="right", color=style.BLUE)
    panel.text(0.012, 0.60, _short(data, 170), **small)
    panel.text(0.012, 0.36, _short(how, 110), **small)
    panel.text(0.988, 0.36, _short(ending(run), 64), ha="right", **small)
    panel.text(0.012, 0.12, reached(run), **small)


def _short(text: str, letters: int) -> str:
    return textwrap.shorten(text, letters, placeholder="…")


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
        ("sites", "power at the start", miles(sites), sites["power_fraction"]),
        ("sites", "samples", miles(sites), sites["num_samples"]),
        ("sites", "share of the rounds", miles(sites), chosen(run)),
    ]
    if (varying := power_over_time(run)) is not None:
        columns = (varying[name] for name in ("hours", "mean", "min", "max", "n"))
        parts.append(("power", "cohort", *columns))
    tables = []
    for panel, series, *columns in parts:
        named = dict(zip(("x", "y", "low", "high", "n"), map(np.asarray, columns), strict=False))
        tables.append(pd.DataFrame({"panel": panel, "series": series} | named))
    wall = pd.DataFrame(
        [("wall time", name, s) for name, s, *_ in wall_parts(run)], columns=["panel", "series", "y"]
    )
    return pd.concat([*tables, wall], ignore_index=True)


def lines_of(run: Run) -> list[str]:
    """The page's numbers in words."""
    rounds, k = run.rounds, run.rounds["num_sites"]
    compute_h, comm_h = (rounds[f"straggler_{name}_s"].sum() / HOUR_S for name in ("compute", "comm"))
    wall = ", ".join(f"{name} {seconds:.3g} s" for name, seconds, *_ in wall_parts(run))
    data, how = facts(run)
    texts = {
        "run": f"{run.meta['scenario']}, {ending(run)}",
        "outcome": outcome(run),
        "reached": reached(run) or "no",
        "data": data.removeprefix("data: "),
        "how": " ".join(how.split()),
        "cohort": f"{k.iloc[0]} sites first, {k.max()} largest, {k.iloc[-1]} last, of {len(run.sites)}",
        "stragglers": f"{compute_h:.3g} h computing, {comm_h:.3g} h communicating",
        "wall time": f"{wall}; {wall_note(run)}",
        "made by": origin(run),
    }
    return [f"{name:<12}{text}" for name, text in texts.items()]


def accuracy(axes: Axes, run: Run) -> None:
    """Held-out accuracy against simulated time, with the interval that its samples leave, the target and when it was
    reached."""
    rows = run.rounds.dropna(subset="accuracy")
    hours = rows["clock_s"] / HOUR_S
    low, high = wilson(rows["eval_correct"].to_numpy(), rows["eval_seen"].to_numpy())
    if np.isfinite(low).any():
        band = {"color": style.SKY, "alpha": 0.4, "linewidth": 0}
        axes.fill_between(hours, 100 * low, 100 * high, label="95 % interval", **band)
        if len(rows) == 1:
            axes.errorbar(hours, 100 * (low + high) / 2, yerr=50 * (high - low), color=style.SKY, capsize=3)
    axes.plot(hours, 100 * rows["accuracy"], ".-", markersize=4, color=style.BLUE)
    axes.margins(y=0.1)
    target, reached_s = run.meta["target_accuracy"], run.time_to_accuracy_s
    if np.isfinite(target):
        name = f"target {reading.percent(target)}"
        axes.axhline(100 * target, color=style.VERMILLION, ls="--", lw=0.9, label=name)
    if np.isfinite(reached_s):
        value = 100 * rows.loc[rows["clock_s"] == reached_s, "accuracy"].iloc[0]
        look = {"markerfacecolor": "none", "color": style.VERMILLION, "linestyle": "none", "clip_on": False}
        axes.plot(reached_s / HOUR_S, value, "o", markersize=8, label=f"{reached_s / HOUR_S:.3g} h", **look)
    sizes = sorted({*rows["eval_seen"]})
    n = f"\n(n = {sizes[-1]:,} test samples)" if sizes else ""
    axes.set(xlabel="Simulated time (hours)", ylabel=f"Held-out accuracy (%){n}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    titled(axes, "Accuracy")


def loss(axes: Axes, run: Run) -> None:
    """Held-out and training loss against simulated time."""
    for name, column, look in (
        ("held-out", "eval_loss", {"color": style.BLUE, "marker": "."}),
        ("training, mean of the cohort", "train_loss", {"color": style.VERMILLION, "linestyle": "--"}),
    ):
        values = run.rounds[column].where(np.isfinite(run.rounds[column]))
        if column == "eval_loss":
            values = values.where(run.rounds["accuracy"].notna())
        rows = values.dropna()
        if len(rows):
            axes.plot(run.rounds["clock_s"][rows.index] / HOUR_S, rows, label=name, markersize=4, **look)
    axes.set(xlabel="Simulated time (hours)", ylabel="Mean loss")
    axes.set_xlim(left=0)
    titled(axes, "Loss")


def cohort(axes: Axes, run: Run) -> None:
    """Cohort size against simulated time, with what the efficiency search voted for."""
    hours, k = reading.cohort_steps(run)
    axes.step(hours, k, where="post", color=style.BLUE, label="cohort size k")
    voted = run.rounds[run.rounds["voted_num_sites"] > 0]
    if len(voted):
        look = {"markersize": 4, "color": style.VERMILLION, "clip_on": False}
        axes.plot(voted["clock_start_s"] / HOUR_S, voted["voted_num_sites"], "x", label="vote k*", **look)
    name = f"all sites, N = {len(run.sites)}"
    axes.axhline(len(run.sites), color=style.GREY, linewidth=0.8, linestyle=":", label=name)
    axes.set(xlabel="Simulated time (hours)", ylabel="Sites")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * len(run.sites))
    style.whole_numbers(axes, "y")
    titled(axes, "Cohort")


def round_times(axes: Axes, run: Run) -> None:
    """Compute and communication time of each round's straggler, below the round's whole time."""
    compute = run.rounds["straggler_compute_s"] / 60
    both = compute + run.rounds["straggler_comm_s"] / 60
    edges = np.append(run.rounds["round"] - 0.5, run.rounds["round"].iloc[-1] + 0.5)
    axes.stairs(compute, edges, fill=True, color=style.BLUE, label="compute")
    light = {"facecolor": style.ORANGE, "edgecolor": style.ORANGE, "linewidth": 0}
    axes.stairs(both, edges, baseline=compute, fill=True, label="communication", **light)
    whole = run.rounds["makespan_s"] / 60
    axes.stairs(whole, edges, baseline=None, color="black", linewidth=0.8, label="round")
    axes.set(xlabel="Round", ylabel="Simulated minutes\nof the straggler")
    axes.margins(x=0)
    axes.set_ylim(0, 1.08 * max(whole.max(), both.max()))
    style.whole_numbers(axes, "x")
    titled(axes, "Time of a round")


def miles(sites: pd.DataFrame) -> pd.Series:
    """[N] distances to the aggregator."""
    return sites["distance_m"] / MILE_M


def chosen(run: Run) -> np.ndarray:
    """[N] share of the rounds in which each site was in the cohort."""
    counts = run.flying["site"].value_counts().reindex(run.sites["site"], fill_value=0)
    return counts.to_numpy() / len(run.rounds)


def sites(axes: Axes, run: Run) -> None:
    """Distance of the sites against their power at the start, with how often they were chosen."""
    table, most = run.sites, max(1, run.sites["num_samples"].max())
    size = area(table["num_samples"].to_numpy(), most)
    order = np.argsort(-size, kind="stable")  # large ones first, so that small ones stay visible
    edge = {"edgecolor": "#555555", "linewidth": 0.4}
    colours = {"c": 100 * chosen(run)[order], "cmap": "Blues", "vmin": 0, "vmax": 100}
    x, y = miles(table).iloc[order], 100 * table["power_fraction"].iloc[order]
    points = axes.scatter(x, y, s=size[order], clip_on=False, zorder=3, **colours, **edge)
    bar = axes.figure.colorbar(points, ax=axes, pad=0.02, aspect=25)
    bar.set_label("Chosen in % of the rounds")
    bar.outline.set_visible(False)
    scale = 10 ** int(np.log10(max(1, most / 10)))
    rounded = max(1, int(most / 10 / scale) * scale)
    for number in sorted({rounded, most}):
        axes.scatter([], [], s=area(number, most), label=f"{number:,}", color="white", **edge)
    axes.set(xlabel="Distance to the aggregator (miles)", ylabel="Power at the start (% of full)")
    axes.set_ylim(0, 112)
    axes.set_xlim(0, 1.04 * miles(table).max() or 1)
    titled(axes, "Sites", "samples:")


def area(samples: np.ndarray | int, most: int) -> np.ndarray | float:
    """The area of a point, in square points."""
    return 10 + 70 * samples / most


def power_over_time(run: Run) -> pd.DataFrame | None:
    """True power of the cohort's sites at the start of every round: hours, end_h (the round's end), mean, min, max, n.
    None where no site's power ever changed (a constant or uniform model, or one round)."""
    rows = run.flying[["round", "site", "power_fraction"]]
    if not (rows.groupby("site")["power_fraction"].nunique() > 1).any():
        return None
    powers = rows.groupby("round")["power_fraction"].agg(["mean", "min", "max", "size"])
    clock_h = run.rounds.set_index("round")[["clock_start_s", "clock_s"]].reindex(powers.index) / HOUR_S
    powers = powers.rename(columns={"size": "n"})
    return powers.assign(hours=clock_h["clock_start_s"], end_h=clock_h["clock_s"]).reset_index()


def power(axes: Axes, varying: pd.DataFrame) -> None:
    """Power of the cohort over time."""
    last = varying.iloc[-1:].assign(hours=varying["end_h"].iloc[-1])
    varying = pd.concat([varying, last])  # the last round has a length, too
    hours = varying["hours"]
    band = {"step": "post", "color": style.SKY, "alpha": 0.4, "linewidth": 0}
    axes.fill_between(hours, 100 * varying["min"], 100 * varying["max"], label="lowest to highest", **band)
    axes.step(hours, 100 * varying["mean"], where="post", color=style.BLUE, label="mean of the cohort")
    axes.set(xlabel="Simulated time (hours)", ylabel="Power at a round's start (% of full)")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 104)
    titled(axes, "Power over time")


def wall_time(axes: Axes, run: Run) -> None:
    """The measured time of the machine by phase, one bar."""
    left = 0.0
    for name, seconds, colour, hatch in wall_parts(run):
        look = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
        axes.barh(0, seconds, left=left, height=0.7, label=f"{name} {seconds:.3g} s", **look)
        left += seconds
    axes.set(xlabel=f"Measured wall time (s); {wall_note(run)}", yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0)
    titled(axes, "Wall time")


def wall_parts(run: Run) -> list[tuple[str, float, str, str]]:
    """(what, seconds, colour, hatch) of the wall time, summed over rounds; `other` is what no phase claims.

    On several ranks rank 0 records while the hosts train, so recording is then part of the training's time.
    """
    phases = {"training": "train", "exchange": "exchange", "evaluation": "evaluate", "recording": "record"}
    if run.meta["num_ranks"] > 1:
        del phases["recording"]
    parts = [
        (name, float(run.rounds[f"{phase}_wall_s"].sum()), *style.PHASES[phase])
        for name, phase in phases.items()
    ]
    other = max(0.0, float(run.rounds["wall_s"].sum()) - sum(seconds for _, seconds, *_ in parts))
    return [*parts, ("other", other, "#D8D8D8", "")]


def wall_note(run: Run) -> str:
    """A note on what the bar of the wall time cannot show: waiting hosts, and recording beside the training."""
    idle = reading.percent(run.rounds["idle_fraction"].mean())
    note = f"hosts waited {idle} of their training phase"
    if run.meta["num_ranks"] > 1:
        note += f"; rank 0 recorded for {run.rounds['record_wall_s'].sum():.3g} s while they trained"
    return note


def titled(axes: Axes, title: str, legend: str = "") -> None:
    """A panel's title, its faint grid, and its legend where anything has a label."""
    axes.set_title(title, fontsize=9, weight="bold", color="black")
    style.grid(axes, "both")
    handles, labels = axes.get_legend_handles_labels()
    if legend:
        handles, labels = [axes.plot([], [], alpha=0)[0], *handles], [legend, *labels]
    if handles:
        axes.legend(handles, labels, ncols=len(handles), columnspacing=1.2, handletextpad=0.5, **ABOVE)
