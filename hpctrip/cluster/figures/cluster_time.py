"""Power, GPUs and jobs of a simulated cluster over time.

The panels show the power by consumer, the GPUs with a job, and the waiting jobs. Each value is the mean over an
interval of the results file, so the area under the power is the energy.
"""

from __future__ import annotations

from collections.abc import Sequence

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.units import HOUR_S, J_PER_KWH
from hpctrip.cluster.figures.cluster_front import read_clusters
from hpctrip.cluster.results import ClusterRun
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import RUNS_ARGUMENT, Source, Subject

PARTS = {"jobs": ("job", style.BLUE), "hosts": ("host", style.ORANGE), "idle GPUs": ("idle", style.GREY)}


def _one_cluster(runs: Sequence[str]) -> list[Subject]:
    ((clusters, files, _),) = read_clusters(runs)
    if len(clusters) > 1 or not len(clusters[0].intervals):
        problem = "is not one cluster with an interval"
        raise InputError(" ".join(runs), problem, "name one results file")
    return [Subject(clusters[0], files)]


@figure(Source("one results file of a simulated cluster", RUNS_ARGUMENT, _one_cluster))
def plot(run: ClusterRun) -> Drawing:
    """Draw the power above, the GPUs and the waiting jobs below."""
    table = numbers(run)
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
    for axes in (above, middle, below):
        axes.set_ylim(bottom=0)
        style.grid(axes, "y")
    made_up = ", synthetic jobs" if run.meta["synthetic_jobs"] else ""
    style.finish(picture, f"{run.meta['label'] or run.meta['scheduler']}{made_up}, simulated")
    energy_kwh = run.meta["energy_j"] / J_PER_KWH
    line = f"{energy_kwh:.1f} kWh in {table['clock_h'].iloc[-1]:.2f} h, largest power {table['peak_kw'].max():.2f} kW"
    return Drawing(picture, table, [line])


def numbers(run: ClusterRun) -> pd.DataFrame:
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
