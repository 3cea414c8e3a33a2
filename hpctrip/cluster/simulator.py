"""Event-driven simulation of a cluster.

Speeds and powers are constant between two events, so every integral over time is a sum of products. Events at the same
time are processed in this order: completions, nodes that become ready or switch off, submissions, the decision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.series import Signal, next_step_s
from hpctrip.base.units import Seconds
from hpctrip.base.validate import instance, numbers
from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import Limit
from hpctrip.cluster.frequencies import FrequencyPolicy
from hpctrip.cluster.rows import IntervalMeter, PowerDraw, Result
from hpctrip.cluster.schedulers import Plan, Scheduler
from hpctrip.config.component import Component, config_key
from hpctrip.sim.grid.signals import SiteSignal
from hpctrip.sim.hardware.gpu_power import Gpu


class Clock(Component):
    """Length of the decision rounds, cost of a restart, length of the result intervals, and end of the simulation."""

    round_s: Seconds = Field(60.0, ge=0, le=1e6)
    """Decisions are made at multiples of this time, 1 s or longer, after a submission or completion; 0: at once."""
    restart_s: Seconds = Field(30.0, ge=0, le=1e6)
    """Time without progress after every start of a job on other GPUs, the first included. The GPUs draw full power."""
    sample_s: Seconds = Field(600.0, ge=1, le=1e9)
    """Length of an interval in the results."""
    stop_s: Seconds = Field(1e9, gt=0, le=1e9)
    """The simulation ends at this time, even if jobs are left."""

    @model_validator(mode="after")
    def _rounds(self) -> Self:
        if 0 < self.round_s < 1:
            raise ValueError(f"round_s = {self.round_s:g} is neither 0 nor 1 s or longer")
        return self

    def round_from(self, clock_s: float) -> float:
        """The earliest decision time at or after `clock_s`."""
        if not self.round_s:
            return clock_s
        return max(math.ceil(clock_s / self.round_s) * self.round_s, clock_s)


@dataclass(eq=False)
class Simulator:
    """One simulation of one cluster. `run` may be called once."""

    allocator: Allocator
    gpu: Gpu
    scheduler: Scheduler
    frequency: FrequencyPolicy
    limit: Limit
    carbon: Signal | SiteSignal
    """Carbon intensity of the cluster's power in g/kWh; 0: not known."""
    clock: Clock

    def __post_init__(self) -> None:
        self.state, self.jobs = self.allocator.state, self.allocator.state.jobs
        self.meter = IntervalMeter(self.clock.sample_s)
        self.clock_s = 0.0
        self._active = np.zeros(0, int)
        self._submit_s = np.append(self.jobs.submit_s, np.inf)
        self._num_submitted = self._num_decisions = 0
        self._next_decision_s = 0.0  # nodes that are on before the first submission draw power, too
        self._next_end_s = self._limit_w = math.inf
        self._is_stuck = False
        self._draw: PowerDraw | None = None

    def run(self, stop_s: float | None = None) -> Result:
        """Simulate until all jobs are completed, no job can make progress any more, or `stop_s` (clock.stop_s)."""
        reason = ""
        while not reason:
            reason = self.step(self.clock.stop_s if stop_s is None else stop_s)
        self._close_interval()
        return Result(self.state.rows(self.clock_s), tuple(self.meter.rows), reason)

    def step(self, stop_s: float) -> str:
        """Advance to the next event, at most to `stop_s`, and process it.

        Returns why the simulation has ended, else an empty text. Raises InputError if the limit, the scheduler or the
        frequency policy returns an invalid value.
        """
        if self._num_submitted == len(self.jobs) and not len(self._active):
            return "all jobs are done"
        if self._is_stuck:
            return "no job that is left is given GPUs, and nothing to come will change that"
        limit_changes_s = self.limit.next_change_s(self.clock_s)
        next_s = min(
            float(self._submit_s[self._num_submitted]),
            self._next_end_s,
            self.allocator.next_s(),
            self._next_decision_s,
            limit_changes_s,
            self.carbon.next_change_s(self.clock_s),
            self.meter.due_s,
            stop_s,
        )
        self.meter.advance(next_s, self.draw(), self.carbon.at(self.clock_s), self._limit_w)
        self.clock_s = next_s
        if next_s == limit_changes_s:
            self._next_decision_s = min(self._next_decision_s, next_s)
        self._process_events()
        if next_s == self.meter.due_s:
            self._close_interval()
        return "the time of stop_s is over" if next_s >= stop_s else ""

    def draw(self) -> PowerDraw:
        """Present power of the cluster by consumer, and its GPUs and nodes in use."""
        if self._draw is None:
            allocator, active = self.allocator, self._active
            num_powered, num_up = int(allocator.layout.powered.sum()), int(allocator.nodes.up.sum())
            busy = int(self.state.gpus[active][self.state.power_w[active] > 0].sum())
            idle = num_up * allocator.machine.gpus_per_node - busy
            hosts_w = num_powered * allocator.machine.host_w
            jobs_w = float(self.state.power_w[active].sum())
            self._draw = PowerDraw(jobs_w, hosts_w, idle * self.gpu.idle_w, busy, num_powered)
        return self._draw

    def _process_events(self) -> None:
        """Process all events that are due at the current time."""
        now_s, changes = self.clock_s, False
        if self._next_end_s <= now_s:
            completed = self.state.finish_s[self._active] <= now_s
            self.allocator.complete(self._active[completed], now_s)
            self._active = self._active[~completed]
            self._request_decision()
            changes = True
        if self.allocator.next_s() <= now_s:
            self.allocator.advance(now_s)
            changes = True
        if self._submit_s[self._num_submitted] <= now_s:
            num_submitted = int(np.searchsorted(self._submit_s, now_s, side="right"))
            self._active = np.append(self._active, np.arange(self._num_submitted, num_submitted))
            self._num_submitted = num_submitted
            self._request_decision()
        decides = self._next_decision_s <= now_s
        if decides:
            self._decide()
            changes = True
        if changes:
            self._draw = None
            ends_s = self.state.finish_s[self._active]
            self._next_end_s = float(ends_s.min()) if len(ends_s) else math.inf
            none_runs = self._next_end_s == math.inf and self._num_submitted == len(self.jobs)
            self._is_stuck = decides and none_runs and self.limit.is_spent(now_s)

    def _request_decision(self) -> None:
        self._next_decision_s = min(self._next_decision_s, self.clock.round_from(self.clock_s))

    def _decide(self) -> None:
        """Ask the limit, the scheduler and the frequency policy, and apply their answers to jobs and nodes."""
        now_s, active, clock, used = self.clock_s, self._active, self.clock, self.meter
        limit_w = self.limit.limit_w(
            now_s, now_s + (clock.round_s or clock.sample_s), used.energy_j, used.carbon_g
        )
        self._limit_w = float(numbers(limit_w, (), 0.0, math.inf, "budget", "the watts that may be drawn"))
        order = self._apply_plan() if len(active) else active
        self.allocator.keep_below(self._limit_w, order, now_s)
        draws = len(active) > 0 or bool(self.allocator.layout.powered.any())
        renewed = (self.scheduler.periodic and len(active)) or (self.limit.renewed and draws)
        self._next_decision_s = next_step_s(now_s, clock.round_s) if renewed else math.inf

    def _apply_plan(self) -> np.ndarray:
        """Apply the plan of the scheduler and the frequencies; returns the active jobs by decreasing importance."""
        now_s, active = self.clock_s, self._active
        self._num_decisions += 1
        view = self.state.view(active, now_s, self.allocator.machine, self.clock.restart_s, self._limit_w)
        chosen, highest = partial(self.frequency.checked_choice, view, gpu=self.gpu), self.allocator.highest
        foreseen = replace(view, frequency_on=lambda gpus: np.minimum(chosen(gpus), highest))
        place = config_key("scheduler", self.scheduler)
        plan = instance(self.scheduler.plan(foreseen), Plan, place, "its plan").checked(view, place)
        frequency = chosen(plan.gpus) if plan.frequency is None else plan.frequency
        self.allocator.apply(active, plan.gpus, frequency, self.scheduler.elastic, now_s)
        return active if plan.order is None else active[plan.order]

    def _close_interval(self) -> None:
        running = int((self.state.gpus[self._active] > 0).sum())
        counts = {
            "starts": int(self.state.starts.sum()),
            "migrations": int(self.state.migrations.sum()),
            "boots": self.allocator.nodes.boots,
            "decisions": self._num_decisions,
        }
        present = {
            "num_running": running,
            "num_waiting": len(self._active) - running,
            "stranded_gpus": self.allocator.layout.stranded,
        }
        self.meter.close(counts, present)
