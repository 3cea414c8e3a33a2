"""Integrates the power of the cluster into rows of equal intervals; exact, as power is constant between events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.units import J_PER_KWH
from hpctrip.cluster.rows import IntervalRow


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


class Counts(NamedTuple):
    """Numbers of events since the beginning, and present numbers of jobs and stranded GPUs."""

    starts: int
    migrations: int
    boots: int
    decisions: int
    num_running: int
    num_waiting: int
    stranded_gpus: int


MOST_INTERVALS = 1_000_000
"""Maximum number of intervals of one simulation, whose results are held in memory."""


@dataclass
class IntervalMeter:
    """Divides time into intervals of `sample_s` seconds and makes a row of each."""

    sample_s: float
    rows: list[IntervalRow] = field(default_factory=list)
    energy_j: float = 0.0
    """Energy of the whole cluster since the beginning."""
    carbon_g: float = 0.0

    def __post_init__(self) -> None:
        self._sums, self._start_s, self._clock_s = np.zeros(6), 0.0, 0.0
        self._peak_w, self._limit_w = 0.0, np.inf
        self._before = Counts(0, 0, 0, 0, 0, 0, 0)

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
        self._sums += (
            power.jobs_w * span_s,
            power.hosts_w * span_s,
            power.idle_w * span_s,
            grams,
            power.busy_gpus * span_s,
            power.nodes_on * span_s,
        )
        self.energy_j += power.total_w * span_s
        self.carbon_g += grams
        self._peak_w, self._limit_w = max(self._peak_w, power.total_w), min(self._limit_w, limit_w)
        self._clock_s = clock_s

    def close(self, counts: Counts) -> None:
        """End the interval now and make its row, unless its length is 0. Raises InputError if there are too many."""
        span_s = self._clock_s - self._start_s
        if span_s <= 0:
            return
        if len(self.rows) == MOST_INTERVALS:
            raise InputError(
                f"clock.sample_s = {self.sample_s:g}",
                f"{self._clock_s:g} simulated seconds and more are over {MOST_INTERVALS:,} intervals",
                "make them longer, or end the simulation earlier by clock.stop_s",
            )
        jobs_j, hosts_j, idle_j, grams, busy, nodes = self._sums.tolist()
        total_j = jobs_j + hosts_j + idle_j
        before, self._before = self._before, counts
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
                num_running=counts.num_running,
                num_waiting=counts.num_waiting,
                stranded_gpus=counts.stranded_gpus,
                starts=counts.starts - before.starts,
                migrations=counts.migrations - before.migrations,
                boots=counts.boots - before.boots,
                decisions=counts.decisions - before.decisions,
            )
        )
        self._sums, self._start_s = np.zeros(6), self._clock_s
        self._peak_w, self._limit_w = 0.0, np.inf
