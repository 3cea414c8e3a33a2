"""One run on one page: how accuracy came about, what it cost, which sites did it, where the wall time went.

python postprocess/summary.py results/run.h5 [--out results/run.png]
"""

from __future__ import annotations

import sys
import textwrap

import numpy as np
from common import commandline, grouping, reading, style
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator

from hpctrip.base.units import HOUR_S, MILE_M
from hpctrip.record.reader import InputError, Run

PAGE_INCHES = (7.2, 10.5)
"""Height and width."""


@commandline.script
def main(argv=None) -> None:
    """Draw the summary of every run given, each beside its file unless --out names a place for the only one."""
    args = commandline.run_parser(__doc__, None).parse_args(argv)
    runs = reading.read_runs(args.runs)
    if args.out and len(runs) > 1:
        raise InputError(
            "--out", f"one picture cannot hold {len(runs)} runs", "without it each goes beside its file"
        )
    for run in runs:
        page = draw(run)
        print_numbers(run)
        commandline.save(page, args.out or run.path.with_suffix(".png"))


def draw(run: Run) -> Figure:
    """The page of one run."""
    page = style.figure(*PAGE_INCHES)
    page.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    head, body, foot = page.subfigures(3, 1, height_ratios=(0.14, 1, 0.18))
    header(head, run)
    (top_left, top_right), (low_left, low_right) = body.subplots(2, 2, width_ratios=(1.25, 1))
    accuracy(top_left, run)
    sites(top_right, run)
    cohort(low_left, run)
    round_times(low_right, run)
    wall_time(foot.subplots(), run)
    return page


def facts(run: Run) -> list[str]:
    """The lines that say what this run was; synthetic data and power are called so."""
    meta = run.meta
    said = "synthetic " if meta["synthetic_data"] and "synthetic" not in meta["data_source"].lower() else ""
    how = (
        f"{'synthetic' if meta['synthetic_power'] else 'real'} power",
        f"policy {grouping.grouped([run])[0].label}",
        f"seed {meta['seed']}",
        f"{reading.counted(meta['num_ranks'], 'rank')}, {meta['transport']}",
        f"engine {meta['engine']}",
        f"model digest {meta['params_digest'][:16] or 'not known'}",
    )
    return [f"{said}data: {meta['data_source'] or 'source not recorded'}", " · ".join(how)]


def outcome(run: Run) -> str:
    """How the run ended: its time-to-accuracy, or how far it got."""
    target, reached_s = run.meta["target_accuracy"], run.time_to_accuracy_s
    if np.isfinite(reached_s):
        return f"{reading.percent(target)} accuracy after {reached_s / HOUR_S:.3g} simulated hours"
    spent = f"{run.rounds['clock_s'].iloc[-1] / HOUR_S:.3g} simulated hours"
    return f"best accuracy {reading.percent(run.rounds['accuracy'].max())} in {spent}"


def ending(run: Run) -> str:
    """Status, rounds and the rule that ended it."""
    reason = run.meta["stop_reason"]
    return f"{run.meta['status']} after {reading.counted(len(run.rounds), 'round')}" + (
        f": {reason}" if reason else ""
    )


def header(panel: SubFigure, run: Run) -> None:
    """Name, outcome and facts, over the whole width."""
    data, how = facts(run)
    panel.text(0.012, 0.88, run.meta["scenario"], fontsize=15, weight="bold", va="top")
    panel.text(0.988, 0.88, outcome(run), fontsize=12, va="top", ha="right", color=style.BLUE)
    panel.text(
        0.988, 0.47, textwrap.shorten(ending(run), 80), fontsize=8, va="top", ha="right", color="#333333"
    )
    panel.text(0.012, 0.47, textwrap.shorten(data, 120), fontsize=8, va="top", color="#333333")
    panel.text(0.012, 0.20, textwrap.shorten(how, 200), fontsize=8, va="top", color="#333333")


def accuracy(axes: Axes, run: Run) -> None:
    """Held-out accuracy against simulated time, with the target and the time it was reached."""
    evaluated = run.rounds.dropna(subset="accuracy")
    axes.plot(
        evaluated["clock_s"] / HOUR_S, 100 * evaluated["accuracy"], ".-", markersize=4, color=style.BLUE
    )
    axes.set(xlabel="Simulated time (hours)", ylabel="Held-out accuracy (%)")
    titled(axes, "Accuracy")
    axes.margins(y=0.1)
    target, reached_s = run.meta["target_accuracy"], run.time_to_accuracy_s
    if np.isfinite(target):
        axes.axhline(
            100 * target, color=style.VERMILLION, ls="--", lw=0.9, label=f"target {reading.percent(target)}"
        )
    if np.isfinite(reached_s):
        value = 100 * reading.accuracy_at(run.rounds, reached_s)
        look = {"markerfacecolor": "none", "color": style.VERMILLION, "linestyle": "none", "clip_on": False}
        axes.plot(
            reached_s / HOUR_S, value, "o", markersize=8, label=f"after {reached_s / HOUR_S:.3g} h", **look
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    if np.isfinite(target):
        legend_above(axes)


def cohort(axes: Axes, run: Run) -> None:
    """Cohort size against simulated time, with what the efficiency search voted for."""
    hours, k = reading.cohort_steps(run.rounds)
    axes.step(hours, k, where="post", color=style.BLUE, label="cohort size k")
    voted = run.rounds[run.rounds["voted_num_sites"] > 0]
    if len(voted):
        axes.plot(
            voted["clock_start_s"] / HOUR_S,
            voted["voted_num_sites"],
            "x",
            markersize=4,
            color=style.VERMILLION,
            label="vote k*",
        )
    axes.axhline(
        len(run.sites),
        color=style.GREY,
        linewidth=0.8,
        linestyle=":",
        label=f"all sites, N = {len(run.sites)}",
    )
    axes.set(xlabel="Simulated time (hours)", ylabel="Sites")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * len(run.sites))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    titled(axes, "Cohort")
    legend_above(axes)


def round_times(axes: Axes, run: Run) -> None:
    """What each round's simulated time went to at the straggler, below the round's whole time."""
    compute, both = (
        np.cumsum([run.rounds["straggler_compute_s"], run.rounds["straggler_comm_s"]], axis=0) / 60
    )
    edges = np.append(run.rounds["round"] - 0.5, run.rounds["round"].iloc[-1] + 0.5)
    axes.stairs(compute, edges, fill=True, color=style.SKY, label="compute")
    axes.stairs(both, edges, baseline=compute, fill=True, color=style.ORANGE, label="communication")
    axes.stairs(
        run.rounds["makespan_s"] / 60, edges, baseline=None, color="black", linewidth=0.8, label="round"
    )
    axes.set(xlabel="Round", ylabel="Straggler's time (minutes)")
    axes.margins(x=0)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    titled(axes, "Time of a round")
    legend_above(axes)


def sites(axes: Axes, run: Run) -> None:
    """Where the sites are and which were chosen: distance against power at the start."""
    table = run.sites
    chosen = run.cohorts["site"].value_counts().reindex(table["site"], fill_value=0).to_numpy() / len(
        run.rounds
    )
    size = 10 + 70 * table["num_samples"] / table["num_samples"].max()
    order = np.argsort(-size.to_numpy(), kind="stable")  # large ones first, so that small ones stay visible
    points = axes.scatter(
        table["distance_m"].iloc[order] / MILE_M,
        100 * table["power_fraction"].iloc[order],
        s=size.iloc[order],
        c=100 * chosen[order],
        cmap="Blues",
        vmin=0,
        vmax=100,
        edgecolor="#555555",
        linewidth=0.4,
    )
    bar = axes.figure.colorbar(points, ax=axes, pad=0.01, aspect=30)
    bar.set_label("chosen in % of the rounds")
    bar.outline.set_visible(False)
    axes.set(xlabel="Distance to the aggregator (miles)", ylabel="Power at the start (% of full)")
    axes.set_ylim(0, 104)
    axes.set_xlim(left=-0.02 * max(1, table["distance_m"].max() / MILE_M))
    titled(axes, "Sites (area: number of samples)")


def wall_time(axes: Axes, run: Run) -> None:
    """Where the measured time of the machine went, one bar."""
    left = 0.0
    for name, seconds, colour in wall_parts(run):
        axes.barh(0, seconds, left=left, height=0.7, color=colour, label=f"{name} {seconds:.3g} s")
        left += seconds
    axes.set(xlabel="Wall time (s)", yticks=[])
    axes.spines["left"].set_visible(False)
    axes.margins(x=0)
    idle = reading.percent(run.rounds["idle_fraction"].mean())
    titled(axes, f"Where the wall time went (hosts waited {idle} of their training phase)")
    legend_above(axes)


def wall_parts(run: Run) -> list[tuple[str, float, str]]:
    """(what, seconds, colour) of the wall time, summed over rounds; `other` is what no phase claims."""
    total = run.rounds[["wall_s", "train_wall_s", "exchange_wall_s", "evaluate_wall_s"]].sum()
    phases = total["train_wall_s"], total["exchange_wall_s"], total["evaluate_wall_s"]
    other = max(0.0, total["wall_s"] - sum(phases))
    names, colours = (
        ("training", "exchange", "evaluation", "other"),
        (style.SKY, style.ORANGE, style.GREEN, "#CCCCCC"),
    )
    return list(zip(names, (*phases, other), colours, strict=True))


def titled(axes: Axes, title: str) -> None:
    """A panel's title and its faint grid."""
    axes.set_title(title, fontsize=9, weight="bold", color="black")
    style.grid(axes, "both")


def legend_above(axes: Axes) -> None:
    """A legend right of the title, over no data."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 0.985),
        ncols=4,
        handlelength=1.5,
        borderaxespad=0,
        columnspacing=1.2,
    )


def print_numbers(run: Run) -> None:
    """The page's numbers."""
    rounds, k = run.rounds, run.rounds["num_sites"]
    hours = {name: rounds[f"straggler_{name}_s"].sum() / HOUR_S for name in ("compute", "comm")}
    data, how = facts(run)
    for name, said in {
        "run": f"{run.meta['scenario']}, {ending(run)}",
        "outcome": outcome(run),
        "data": data.removeprefix("data: "),
        "how": " ".join(how.split()),
        "cohort": f"{k.iloc[0]} sites first, {k.max()} largest, {k.iloc[-1]} last, of {len(run.sites)}",
        "stragglers": f"{hours['compute']:.3g} h computing, {hours['comm']:.3g} h communicating",
        "wall time": ", ".join(f"{name} {seconds:.3g} s" for name, seconds, _ in wall_parts(run)),
    }.items():
        print(f"{name:<12}{said}")


if __name__ == "__main__":
    sys.exit(main())
