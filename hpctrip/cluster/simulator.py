"""Event-driven simulation of a cluster.

Speeds and powers are constant between two events, so every integral over time is a sum of products. Events at the same
time are processed in this order: completions, nodes that become ready or switch off, submissions, the decision.
"""

from __future__ import annotations

import math

import numpy as np

from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import Limit
from hpctrip.cluster.decisions import Clock, Decisions
from hpctrip.cluster.frequencies import FrequencyPolicy
from hpctrip.cluster.jobs import Jobs
from hpctrip.cluster.meter import Counts, IntervalMeter, PowerDraw
from hpctrip.cluster.placement import Layout
from hpctrip.cluster.profiles import Speeds
from hpctrip.cluster.rows import Result
from hpctrip.cluster.schedulers import Scheduler
from hpctrip.cluster.state import JobState
from hpctrip.sim.hardware.gpu_power import Gpu


class Simulator:
    """One simulation of one cluster. `run` may be called once."""

    def __init__(
        self,
        jobs: Jobs,
        speeds: Speeds,
        gpu: Gpu,
        layout: Layout,
        scheduler: Scheduler,
        frequency: FrequencyPolicy,
        limit: Limit,
        clock: Clock,
        max_migrations: int,
    ):
        self.jobs, self.gpu, self.clock, self.limit = jobs, gpu, clock, limit
        self.state = JobState(jobs, speeds)
        self.allocator = Allocator(self.state, layout, gpu, clock.restart_s, max_migrations)
        self.decisions = Decisions(self.allocator, gpu, scheduler, frequency, limit, clock)
        self.meter = IntervalMeter(clock.sample_s)
        self.clock_s = 0.0
        self._stop_s = clock.stop_s
        self._num_submitted = 0
        self._active = np.zeros(0, int)
        self._next_end_s = math.inf
        self._is_stuck = False
        self._draw: PowerDraw | None = None

    def run(self, stop_s: float | None = None) -> Result:
        """Simulate until all jobs are completed, no job can make progress any more, or `stop_s` (clock.stop_s)."""
        self._stop_s = self.clock.stop_s if stop_s is None else stop_s
        reason = ""
        while not reason:
            reason = self.step()
        self.meter.close(self._counts())
        return Result(self.state.rows(self.clock_s), tuple(self.meter.rows), reason)

    def step(self) -> str:
        """Advance to the next event and process it. Returns why the simulation has ended, else an empty text."""
        if self._num_submitted == len(self.jobs) and not len(self._active):
            return "all jobs are done"
        if self._is_stuck:
            return "no job that is left is given GPUs, and nothing to come will change that"
        limit_changes_s = self.limit.next_change_s(self.clock_s) if len(self._active) else math.inf
        next_s = min(
            self._next_submission_s(),
            self._next_end_s,
            self.allocator.next_s(),
            self.decisions.next_s,
            limit_changes_s,
            self.meter.due_s,
            self._stop_s,
        )
        self.meter.advance(next_s, self.draw(), self.limit.intensity.at(self.clock_s), self.decisions.limit_w)
        self.clock_s = next_s
        if next_s == limit_changes_s:
            self.decisions.request(next_s, at_once=True)
        self._process_events()
        if next_s == self.meter.due_s:
            self.meter.close(self._counts())
        return "the time of stop_s is over" if next_s >= self._stop_s else ""

    def draw(self) -> PowerDraw:
        """Present power of the cluster by consumer, and its GPUs and nodes in use."""
        if self._draw is None:
            nodes, active = self.allocator.nodes, self._active
            busy = int(self.state.gpus[active][self.state.power_w[active] > 0].sum())
            idle = nodes.num_up * nodes.machine.gpus_per_node - busy
            hosts_w = nodes.num_powered * nodes.machine.host_w
            jobs_w = float(self.state.power_w[active].sum())
            self._draw = PowerDraw(jobs_w, hosts_w, idle * self.gpu.idle_w, busy, nodes.num_powered)
        return self._draw

    def _process_events(self) -> None:
        """Process all events that are due at the current time."""
        now_s, changes = self.clock_s, False
        if self._next_end_s <= now_s:
            completed = self.state.finish_s[self._active] <= now_s
            self.allocator.complete(self._active[completed], now_s)
            self._active = self._active[~completed]
            self.decisions.request(now_s)
            changes = True
        if self.allocator.next_s() <= now_s:
            self.allocator.advance(now_s)
            changes = True
        if self._next_submission_s() <= now_s:
            num_submitted = int(np.searchsorted(self.jobs.submit_s, now_s, side="right"))
            self._active = np.append(self._active, np.arange(self._num_submitted, num_submitted))
            self._num_submitted = num_submitted
            self.decisions.request(now_s)
        decides = self.decisions.next_s <= now_s
        if decides:
            self.decisions.make(self._active, now_s, self.meter)
            changes = True
        if changes:
            self._draw = None
            ends_s = self.state.finish_s[self._active]
            self._next_end_s = float(ends_s.min()) if len(ends_s) else math.inf
            none_runs = self._next_end_s == math.inf and self._num_submitted == len(self.jobs)
            self._is_stuck = decides and none_runs and self.limit.is_spent(now_s)

    def _next_submission_s(self) -> float:
        return (
            float(self.jobs.submit_s[self._num_submitted])
            if self._num_submitted < len(self.jobs)
            else math.inf
        )

    def _counts(self) -> Counts:
        running = int((self.state.gpus[self._active] > 0).sum())
        return Counts(
            starts=int(self.state.starts.sum()),
            migrations=int(self.state.migrations.sum()),
            boots=self.allocator.nodes.boots,
            decisions=self.decisions.count,
            num_running=running,
            num_waiting=len(self._active) - running,
            stranded_gpus=self.allocator.layout.stranded,
        )
