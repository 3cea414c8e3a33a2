"""Integrates what the cluster draws, exactly: between events its power is constant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.units import J_PER_KWH
from hpctrip.cluster.rows import IntervalRow


class Draw(NamedTuple):
    """What the cluster draws and does between two events."""

    jobs_w: float
    hosts_w: float
    idle_w: float
    busy_gpus: float
    nodes_on: float

    @property
    def total_w(self) -> float:
        """Of the whole cluster."""
        return self.jobs_w + self.hosts_w + self.idle_w


class Counts(NamedTuple):
    """How often since the beginning, and how many now."""

    starts: int
    migrations: int
    boots: int
    decisions: int
    num_running: int
    num_waiting: int
    stranded_gpus: int


MOST_INTERVALS = 1_000_000
"""Of one simulation: its results are held in memory."""


@dataclass
class Meter:
    """Cuts time into intervals of `sample_s` seconds and makes a row of each."""

    sample_s: float
    rows: list[IntervalRow] = field(default_factory=list)
    energy_j: float = 0.0
    """Of everything up to now."""
    carbon_g: float = 0.0

    def __post_init__(self) -> None:
        self._sums, self._start_s, self._clock_s = np.zeros(6), 0.0, 0.0
        self._peak_w, self._limit_w = 0.0, np.inf
        self._before = Counts(0, 0, 0, 0, 0, 0, 0)

    @property
    def due_s(self) -> float:
        """When the interval ends."""
        return (len(self.rows) + 1) * self.sample_s

    def advance(self, clock_s: float, draw: Draw, intensity: float, limit_w: float) -> None:
        """From where it was to `clock_s`, not beyond `due_s`, the cluster has drawn that."""
        span_s = clock_s - self._clock_s
        if span_s <= 0:
            return
        grams = draw.total_w * span_s * intensity / J_PER_KWH
        self._sums += (
            draw.jobs_w * span_s,
            draw.hosts_w * span_s,
            draw.idle_w * span_s,
            grams,
            draw.busy_gpus * span_s,
            draw.nodes_on * span_s,
        )
        self.energy_j += draw.total_w * span_s
        self.carbon_g += grams
        self._peak_w, self._limit_w = max(self._peak_w, draw.total_w), min(self._limit_w, limit_w)
        self._clock_s = clock_s

    def close(self, counts: Counts) -> None:
        """End the interval here. One of no length leaves no row. InputError where there are too many."""
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
