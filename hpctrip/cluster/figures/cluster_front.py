"""Completion time against energy of simulated clusters.

Each point is a run: its average job completion time and the energy of the whole cluster. Runs of one scheduler, for
example with different budgets, are joined in the order of their energy. Lower left is better. The faint line is the
Pareto front of all runs: no other run is better in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.stats import on_front
from hpctrip.base.units import HOUR_S, J_PER_KWH
from hpctrip.cluster.results import ClusterRun, open_cluster
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, aligned, figure
from hpctrip.figures.common.reading import RUNS_ARGUMENT, Source, Subject
from hpctrip.record.reader import open_runs


def read_clusters(runs: Sequence[str]) -> list[Subject]:
    """Read results files of simulated clusters for one picture of all of them."""
    clusters = open_runs(runs, opened=open_cluster)
    if faults := [fault for run in clusters for fault in run.schema_faults()]:
        raise InputError(faults=faults)
    return [Subject(clusters, [run.path for run in clusters])]


@figure(Source("results files of simulated clusters", RUNS_ARGUMENT, read_clusters, of_many=True))
def plot(runs: Sequence[ClusterRun]) -> Drawing:
    """Draw one line for each scheduler, and the Pareto front of all runs."""
    table = numbers(runs)
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


def numbers(runs: Sequence[ClusterRun]) -> pd.DataFrame:
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
