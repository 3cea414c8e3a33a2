"""Events per second of the simulated cluster against the number of jobs, on one core.

    python benchmarks/cluster.py [--jobs 700 7000 70000] [--schedulers fifo powerflow] [--load 0.8]

The jobs are synthetic. The cluster grows with them (a GPU for every seven jobs: 10,000 GPUs for 70,000 jobs) and so
does their density, so that about `--load` of the GPUs are asked for at any time. An event is a submission, an end, a
start, a boot or a decision; decisions are made every 60 s. CPU time is measured, not wall time.
"""

from __future__ import annotations

import argparse
import time

from hpctrip.base.units import J_PER_KWH
from hpctrip.cluster.rows import Result
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.inputs import validate

JOBS_PER_GPU = 7
MEAN_GPU_S = 58_000.0
"""GPU-seconds of a synthetic job with its default keys, on average."""


def scenario(num_jobs: int, scheduler: str, load: float) -> ClusterScenario:
    """The cluster, whose size follows from the number of jobs."""
    num_nodes = max(2, round(num_jobs / JOBS_PER_GPU / 8))
    tables = {
        "cluster": {"num_nodes": num_nodes},
        "jobs": {"num_jobs": num_jobs, "span_s": num_jobs * MEAN_GPU_S / (8 * num_nodes * load)},
        "scheduler": {"kind": scheduler},
    }
    return validate(tables, ClusterScenario)


def num_events(result: Result) -> int:
    """Submissions, ends, starts, boots and decisions."""
    happened = sum(row.boots + row.decisions + row.starts for row in result.intervals)
    return 2 * len(result.jobs.job) + happened


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[700, 7000, 70_000])
    parser.add_argument("--schedulers", nargs="+", default=["fifo", "powerflow"])
    parser.add_argument("--load", type=float, default=0.8)
    options = parser.parse_args()
    print(
        f"{'jobs':>7} {'GPUs':>6}  {'scheduler':16} {'events':>9} {'CPU s':>8} {'events/s':>9}  mean JCT s   kWh"
    )
    for num_jobs in options.jobs:
        for scheduler in options.schedulers:
            chosen = scenario(num_jobs, scheduler, options.load)
            began = time.process_time()
            result = chosen.simulator().run()
            took_s = time.process_time() - began
            events = num_events(result)
            print(
                f"{num_jobs:7d} {chosen.cluster.num_gpus:6d}  {scheduler:16} {events:9d} {took_s:8.1f} "
                f"{events / took_s:9.0f}  {result.mean_jct_s:10.0f}  {result.energy_j / J_PER_KWH:8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
