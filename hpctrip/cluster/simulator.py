"""The simulation: jobs come, a scheduler decides, time passes to the next event, until all jobs are done.

Between two events nothing changes, so every integral is a product. What happens at one time happens in this order:
jobs end, nodes and their jobs wake up or go off, jobs come, the scheduler decides.
"""

from __future__ import annotations

import math

import numpy as np

from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import Limit
from hpctrip.cluster.decisions import Decisions, Rules
from hpctrip.cluster.frequencies import FrequencyPolicy
from hpctrip.cluster.jobs import Jobs
from hpctrip.cluster.meter import Counts, Draw, Meter
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
        rules: Rules,
        max_migrations: int,
    ):
        self.jobs, self.gpu, self.rules, self.limit = jobs, gpu, rules, limit
        self.state = JobState(jobs, speeds)
        self.allocator = Allocator(self.state, layout, gpu, rules.restart_s, max_migrations)
        self.decisions = Decisions(self.allocator, gpu, scheduler, frequency, limit, rules)
        self.meter = Meter(rules.sample_s)
        self.clock_s = 0.0
        self._stop_s = rules.stop_s
        self._come = 0
        self._active = np.zeros(0, int)
        self._next_end_s = math.inf
        self._is_stuck = False
        self._draw: Draw | None = None

    def run(self, stop_s: float | None = None) -> Result:
        """Simulate until all jobs are done, or none ever will be, or `stop_s`, by default that of the rules."""
        self._stop_s = self.rules.stop_s if stop_s is None else stop_s
        reason = ""
        while not reason:
            reason = self.step()
        self.meter.close(self._counts())
        return Result(self.state.rows(self.clock_s), tuple(self.meter.rows), reason)

    def step(self) -> str:
        """Go to the next event and let it happen. Says why the simulation is over, if it is."""
        if self._come == len(self.jobs) and not len(self._active):
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
        self._happen()
        if next_s == self.meter.due_s:
            self.meter.close(self._counts())
        return "the time of stop_s is over" if next_s >= self._stop_s else ""

    def draw(self) -> Draw:
        """What the cluster draws now."""
        if self._draw is None:
            nodes, active = self.allocator.nodes, self._active
            busy = int(self.state.gpus[active][self.state.power_w[active] > 0].sum())
            idle = nodes.num_up * nodes.machine.gpus_per_node - busy
            hosts_w = nodes.num_powered * nodes.machine.host_w
            jobs_w = float(self.state.power_w[active].sum())
            self._draw = Draw(jobs_w, hosts_w, idle * self.gpu.idle_w, busy, nodes.num_powered)
        return self._draw

    def _happen(self) -> None:
        """What is due now."""
        now_s, changes = self.clock_s, False
        if self._next_end_s <= now_s:
            ends = self.state.finish_s[self._active] <= now_s
            self.allocator.complete(self._active[ends], now_s)
            self._active = self._active[~ends]
            self.decisions.request(now_s)
            changes = True
        if self.allocator.next_s() <= now_s:
            self.allocator.advance(now_s)
            changes = True
        if self._next_submission_s() <= now_s:
            come = int(np.searchsorted(self.jobs.submit_s, now_s, side="right"))
            self._active = np.append(self._active, np.arange(self._come, come))
            self._come = come
            self.decisions.request(now_s)
        decides = self.decisions.next_s <= now_s
        if decides:
            self.decisions.make(self._active, now_s, self.meter)
            changes = True
        if changes:
            self._draw = None
            ends_s = self.state.finish_s[self._active]
            self._next_end_s = float(ends_s.min()) if len(ends_s) else math.inf
            nobody_runs = self._next_end_s == math.inf and self._come == len(self.jobs)
            self._is_stuck = decides and nobody_runs and self.limit.is_spent(now_s)

    def _next_submission_s(self) -> float:
        return float(self.jobs.submit_s[self._come]) if self._come < len(self.jobs) else math.inf

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
