"""Results of a simulated cluster: one row per job, and one per interval of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpctrip.base.rows import TEXT, column


@dataclass(frozen=True)
class JobRows:
    """Results of N jobs, as arrays [N] in the order of submission."""

    job: np.ndarray = column("index of the job, from 0", "1", "i8")
    name: Sequence[str] = column("its name in the trace", "1", TEXT)
    profile: Sequence[str] = column("what it trains: model/batch size", "1", TEXT)
    gpus: np.ndarray = column("GPUs that the user asked for", "GPUs", "i8")
    work: np.ndarray = column("work to do, in steps (or shares of a training)", "1")
    submit_s: np.ndarray = column("time of submission", "s")
    start_s: np.ndarray = column("time of the first start (NaN: none)", "s")
    end_s: np.ndarray = column("time of completion (NaN: not completed)", "s")
    jct_s: np.ndarray = column("job completion time: from submission to completion (NaN: not completed)", "s")
    run_s: np.ndarray = column("time with GPUs", "s")
    gpu_s: np.ndarray = column("GPU-seconds", "s")
    energy_j: np.ndarray = column("energy of its GPUs while it had them", "J")
    starts: np.ndarray = column("starts: the first, and those after a pause, a resizing or a move", "1", "i8")
    migrations: np.ndarray = column("of these, moves to other GPUs to free a node", "1", "i8")
    work_left: np.ndarray = column("work that was not done", "1")


@dataclass(frozen=True)
class IntervalRow:
    """Energy, power and numbers of events of the cluster in one interval of time."""

    interval: int = column("number of the interval, from 1", "1", "i8")
    clock_start_s: float = column("its start", "s")
    clock_s: float = column("its end", "s")
    energy_j: float = column("energy of the whole cluster: jobs, hosts and idle GPUs", "J")
    job_energy_j: float = column("of this, that of GPUs with a job", "J")
    host_energy_j: float = column("of this, that of hosts that are on or booting", "J")
    idle_energy_j: float = column("of this, that of GPUs without a job in nodes that are on", "J")
    carbon_g: float = column("carbon of this energy (0: intensity not known)", "g")
    power_w: float = column("mean power", "W")
    peak_w: float = column("largest power", "W")
    limit_w: float = column("least power that the budget allowed (inf: no limit)", "W")
    busy_gpus: float = column("mean number of GPUs with a job", "GPUs")
    nodes_on: float = column("mean number of nodes that are on or booting", "nodes")
    num_running: int = column("jobs with GPUs at its end", "jobs", "i8")
    num_waiting: int = column("submitted jobs without GPUs at its end", "jobs", "i8")
    stranded_gpus: int = column("free GPUs in partly used nodes at its end", "GPUs", "i8")
    starts: int = column("starts of jobs in it", "1", "i8")
    migrations: int = column("of these, moves to free a node", "1", "i8")
    boots: int = column("nodes switched on in it", "1", "i8")
    decisions: int = column("decisions of the scheduler in it", "1", "i8")


@dataclass(frozen=True)
class Result:
    """Result of a finished simulation."""

    jobs: JobRows
    intervals: tuple[IntervalRow, ...]
    stop_reason: str

    @property
    def energy_j(self) -> float:
        """Energy of the whole cluster over the whole simulation."""
        return sum(row.energy_j for row in self.intervals)

    @property
    def mean_jct_s(self) -> float:
        """Average job completion time; NaN if a job was not completed."""
        return float(np.mean(self.jobs.jct_s))
