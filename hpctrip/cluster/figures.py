"""Figures of simulated GPU clusters: times at equal energy, time against energy, and one cluster over time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import on_front
from hpctrip.base.text import aligned
from hpctrip.base.units import HOUR_S, J_PER_KWH, amount
from hpctrip.cluster.results import ClusterRun
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS_ARGUMENT, Source, Subject, csv_table
from hpctrip.record.reader import open_runs

NUMBERS = ("load", "jct_s", "kwh", "powerflow_jct_s", "powerflow_kwh", "ratio")
TEXTS = ("account", "baseline")
WORDS = {"off": "idle nodes switched off", "always-on": "nodes always on", "hosts": "energy of hosts counts"}
"""{part of the name of an account: the same in words}."""


@figure(csv_table(texts=TEXTS, numbers=NUMBERS))
def cluster_equal_energy(table: pd.DataFrame) -> Drawing:
    """Completion times against PowerFlow, at equal energy.

    TABLE.csv is written by `benchmarks/cluster_claim.py` of the source tree. Each panel is one way of accounting:
    whether nodes are switched off, and whether hosts count. Each line is a baseline: its average job completion time
    divided by that of PowerFlow, which needs no more energy, against the load. Above the line at 1 PowerFlow is faster.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    accounts, baselines = (list(dict.fromkeys(table[name])) for name in TEXTS)
    table = table.sort_values("load", kind="stable")
    picture = style.figure(3.4, style.PAGE_INCHES)
    panels = picture.subplots(1, len(accounts), squeeze=False, sharey=True, sharex=True)[0]
    for axes, account in zip(panels, accounts, strict=True):
        of_account = table[table["account"] == account]
        line = {"color": style.FAINT, "linewidth": 2, "label": "as fast as PowerFlow; above: slower"}
        axes.axhline(1.0, zorder=0, **line)
        for i, baseline in enumerate(baselines):
            rows = of_account[of_account["baseline"] == baseline]
            look = style.line(i) | style.point(i)
            axes.plot(rows["load"], rows["ratio"], markersize=4, label=baseline, **look)
        axes.set(xlabel="Arrivals of jobs (times those of the trace)", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.2, 1.5, 2, 3, 5, 7)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(", ".join(WORDS.get(part, part) for part in account.split("+")))
        style.grid(axes, "both")
    panels[0].set_ylabel("Average completion time\nover PowerFlow's")
    style.finish(picture, "Simulated, one run a mark, at the same energy as PowerFlow")
    cells = []
    for row in table.itertuples(index=False):
        hours = f"{row.jct_s / HOUR_S:.2f}", f"{row.powerflow_jct_s / HOUR_S:.2f}"
        energies = f"{row.kwh:.1f}", f"{row.powerflow_kwh:.1f}"
        cells.append((f"{row.load:g}", row.account, row.baseline, *hours, *energies, f"{row.ratio:.2f}"))
    head = ("load", "account", "baseline", "JCT h", "PowerFlow h", "kWh", "PowerFlow kWh", "ratio")
    return Drawing(picture, table, aligned(head, cells))


def read_clusters(runs: Sequence[str]) -> list[Subject]:
    """Read results files of simulated clusters for one picture of all of them."""
    clusters = open_runs(runs, opened=ClusterRun.open)
    if faults := [fault for run in clusters for fault in run.schema_faults()]:
        raise InputError(faults=faults)
    return [Subject(clusters, [run.path for run in clusters])]


@figure(Source("results files of simulated clusters", RUNS_ARGUMENT, read_clusters, of_many=True))
def cluster_front(runs: Sequence[ClusterRun]) -> Drawing:
    """Completion time against energy of simulated clusters.

    Each point is a run: its average job completion time and the energy of the whole cluster. Runs of one scheduler, for
    example with different budgets, are joined in the order of their energy. Lower left is better. The faint line is the
    Pareto front of all runs: no other run is better in both.
    """
    table = front_table(runs)
    picture = style.figure(3.0)
    axes = picture.subplots()
    front = table[table["on_front"]].sort_values("energy_kwh")
    axes.plot(front["energy_kwh"], front["mean_jct_h"], color=style.FAINT, linewidth=3, zorder=0)
    for i, (name, rows) in enumerate(table.groupby("name", sort=True)):  # the table is sorted by energy
        look = style.line(i) | style.point(i) | {"markersize": 4}
        axes.plot(rows["energy_kwh"], rows["mean_jct_h"], label=name, **look)
    axes.set(xlabel="Energy of the cluster (kWh)", ylabel="Average job\ncompletion time (h)")
    axes.set_xlim(0, 1.05 * table["energy_kwh"].max())
    axes.set_ylim(0, 1.05 * table["mean_jct_h"].max())
    style.grid(axes, "both")
    made_up = ", synthetic jobs" if any(run.meta["synthetic_jobs"] for run in runs) else ""
    style.finish(picture, f"Simulated{made_up}; one run a mark; faint: no other run is better in both")
    cells = [
        (row.name, f"{row.mean_jct_h:.3f}", f"{row.energy_kwh:.1f}", "yes" if row.on_front else "no")
        for row in table.itertuples(index=False)
    ]
    return Drawing(picture, table, aligned(("scheduler", "JCT h", "kWh", "on the front"), cells))


def front_table(runs: Sequence[ClusterRun]) -> pd.DataFrame:
    """One row for each run, sorted by scheduler and energy. Raises InputError if a run did not complete all jobs."""
    for run in runs:
        if math.isnan(run.meta["mean_jct_s"]):
            raise InputError(
                str(run.path), "left jobs undone: it has no average completion time", "leave it out"
            )
    table = pd.DataFrame(
        {
            "name": [run.meta["label"] or run.meta["scheduler"] for run in runs],
            "path": [str(run.path) for run in runs],
            "mean_jct_h": [run.meta["mean_jct_s"] / HOUR_S for run in runs],
            "energy_kwh": [run.meta["energy_j"] / J_PER_KWH for run in runs],
        }
    ).sort_values(["name", "energy_kwh", "path"], ignore_index=True)
    table["on_front"] = on_front(table["energy_kwh"].to_numpy(), table["mean_jct_h"].to_numpy())
    return table


PARTS = {"jobs": ("job", style.BLUE), "hosts": ("host", style.ORANGE), "idle GPUs": ("idle", style.GREY)}


def _one_cluster(runs: Sequence[str]) -> list[Subject]:
    ((clusters, files, _),) = read_clusters(runs)
    if len(clusters) > 1 or not len(clusters[0].intervals):
        problem = "is not one cluster with an interval"
        raise InputError(" ".join(runs), problem, "name one results file")
    return [Subject(clusters[0], files)]


@figure(Source("one results file of a simulated cluster", RUNS_ARGUMENT, _one_cluster))
def cluster_time(run: ClusterRun) -> Drawing:
    """Power, GPUs and jobs of a simulated cluster over time.

    The panels show the power by consumer, the GPUs with a job, and the waiting jobs. Each value is the mean over an
    interval of the results file, so the area under the power is the energy.
    """
    table = time_table(run)
    edges = [*table["clock_start_h"], table["clock_h"].iloc[-1]]
    picture = style.figure(3.6, style.PAGE_INCHES)
    above, middle, below = picture.subplots(3, 1, sharex=True, height_ratios=(1.5, 1, 1))
    floor = 0 * table["job_kw"]
    for name, (key, colour) in PARTS.items():
        top = floor + table[f"{key}_kw"]
        above.stairs(top, edges, baseline=floor, fill=True, color=colour, label=name)
        floor = top
    limit = table["limit_kw"].where(table["limit_kw"] < float("inf"))
    if limit.notna().any():
        above.stairs(limit, edges, baseline=None, color="black", linestyle="--", label="budget")
    middle.stairs(table["busy_gpus"], edges, color=style.BLUE)
    below.stairs(table["num_waiting"], edges, color=style.VERMILLION)
    above.set_ylabel("Power (kW)")
    middle.set_ylabel("GPUs\nwith a job")
    below.set(ylabel="Waiting\njobs", xlabel="Simulated time (h)")
    for axes in (middle, below):
        axes.set_ylim(top=max(1.0, axes.get_ylim()[1]))
        style.whole_numbers(axes, "y")
    for axes in (above, middle, below):
        axes.set_ylim(bottom=0)
        style.grid(axes, "y")
    made_up = ", synthetic jobs" if run.meta["synthetic_jobs"] else ""
    style.finish(picture, f"{run.meta['label'] or run.meta['scheduler']}{made_up}, simulated")
    energy, hours = amount(run.meta["energy_j"], "joules"), table["clock_h"].iloc[-1]
    line = f"{energy} in {hours:.2f} h, largest power {amount(1e3 * table['peak_kw'].max(), 'watts')}"
    return Drawing(picture, table, [line])


def time_table(run: ClusterRun) -> pd.DataFrame:
    """One row for each interval, in hours and kilowatts."""
    rows = run.intervals
    lengths_s = rows["clock_s"] - rows["clock_start_s"]
    parts = {f"{key}_kw": rows[f"{key}_energy_j"] / lengths_s / 1e3 for key, _ in PARTS.values()}
    return pd.DataFrame(
        {
            "clock_start_h": rows["clock_start_s"] / HOUR_S,
            "clock_h": rows["clock_s"] / HOUR_S,
            **parts,
            "peak_kw": rows["peak_w"] / 1e3,
            "limit_kw": rows["limit_w"] / 1e3,
            "busy_gpus": rows["busy_gpus"],
            "nodes_on": rows["nodes_on"],
            "num_waiting": rows["num_waiting"],
        }
    )
