"""Results of a simulated cluster: one row per job, and one per interval of time, and the meter that makes these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.rows import TEXT, column
from hpctrip.base.units import J_PER_KWH

MOST_INTERVALS = 1_000_000
"""Maximum number of intervals of one simulation, whose results are held in memory."""


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
    carbon_g: float = column("carbon of this energy (0: intensity unknown)", "g")
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


class PowerDraw(NamedTuple):
    """Power of the cluster by consumer, and its GPUs and nodes in use, constant between two events."""

    jobs_w: float
    hosts_w: float
    idle_w: float
    busy_gpus: float
    nodes_on: float

    @property
    def total_w(self) -> float:
        """Power of the whole cluster."""
        return self.jobs_w + self.hosts_w + self.idle_w


class IntervalMeter:
    """Integrates the power of the cluster into rows of equal intervals; exact, as power is constant between events."""

    def __init__(self, sample_s: float):
        self.sample_s = sample_s
        """Length of an interval."""
        self.rows: list[IntervalRow] = []
        self.energy_j = self.carbon_g = 0.0
        """Energy of the whole cluster since the beginning, and its carbon."""
        self._clock_s, self._counts = 0.0, {}
        self._begin()

    def _begin(self) -> None:
        self._start_s, self._sums, self._peak_w, self._limit_w = self._clock_s, np.zeros(6), 0.0, np.inf

    @property
    def due_s(self) -> float:
        """End of the current interval."""
        return (len(self.rows) + 1) * self.sample_s

    def advance(self, clock_s: float, power: PowerDraw, intensity: float, limit_w: float) -> None:
        """Integrate `power` from the time of the last call to `clock_s`, which is at most `due_s`.

        `intensity`: carbon in g/kWh; `limit_w`: the power limit in watts.
        """
        span_s = clock_s - self._clock_s
        if span_s <= 0:
            return
        grams = power.total_w * span_s * intensity / J_PER_KWH
        self._sums += (*(part * span_s for part in power), grams)
        self.energy_j += power.total_w * span_s
        self.carbon_g += grams
        self._peak_w, self._limit_w = max(self._peak_w, power.total_w), min(self._limit_w, limit_w)
        self._clock_s = clock_s

    def close(self, counts: Mapping[str, int], present: Mapping[str, int]) -> None:
        """End the interval now and make its row, unless its length is 0. Raises InputError if there are too many.

        `counts`: {column: events since the beginning}; `present`: {column: value at this time}.
        """
        span_s = self._clock_s - self._start_s
        if span_s <= 0:
            return
        if len(self.rows) == MOST_INTERVALS:
            raise InputError(
                f"clock.sample_s = {self.sample_s:g}",
                f"{self._clock_s:g} simulated seconds and more are over {MOST_INTERVALS:,} intervals",
                "make them longer, or end the simulation earlier by clock.stop_s",
            )
        jobs_j, hosts_j, idle_j, busy, nodes, grams = self._sums.tolist()
        total_j = jobs_j + hosts_j + idle_j
        self.rows.append(
            IntervalRow(
                interval=len(self.rows) + 1,
                clock_start_s=self._start_s,
                clock_s=self._clock_s,
                energy_j=total_j,
                job_energy_j=jobs_j,
                host_energy_j=hosts_j,
                idle_energy_j=idle_j,
                carbon_g=grams,
                power_w=total_j / span_s,
                peak_w=self._peak_w,
                limit_w=self._limit_w,
                busy_gpus=busy / span_s,
                nodes_on=nodes / span_s,
                **present,
                **{name: count - self._counts.get(name, 0) for name, count in counts.items()},
            )
        )
        self._counts = counts
        self._begin()
