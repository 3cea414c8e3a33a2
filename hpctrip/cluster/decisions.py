"""Calls the scheduler at the decision times and hands its plan to the allocator."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import Seconds
from hpctrip.base.validate import instance, integers, numbers
from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import Limit
from hpctrip.cluster.frequencies import FrequencyPolicy
from hpctrip.cluster.meter import IntervalMeter
from hpctrip.cluster.schedulers import Scheduler
from hpctrip.cluster.view import ClusterView, Plan
from hpctrip.config.component import Component, config_key
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

    def round_after(self, clock_s: float) -> float:
        """The earliest decision time after `clock_s`. `round_s` must not be 0."""
        after_s = (math.floor(clock_s / self.round_s) + 1) * self.round_s
        return after_s if after_s > clock_s else after_s + self.round_s


class Decisions:
    """Makes decisions: asks the limit, the scheduler and the frequency policy, and applies their answers."""

    def __init__(
        self,
        allocator: Allocator,
        gpu: Gpu,
        scheduler: Scheduler,
        frequency: FrequencyPolicy,
        limit: Limit,
        clock: Clock,
    ):
        self.scheduler, self.frequency, self.limit, self.clock = scheduler, frequency, limit, clock
        self._allocator, self._gpu = allocator, gpu
        self.count = 0
        self.next_s = math.inf
        """Time of the next decision; inf: none is scheduled."""
        self.limit_w = math.inf
        """Power limit of the last decision, in watts."""

    def request(self, clock_s: float, at_once: bool = False) -> None:
        """Schedule a decision at the next round, or at once."""
        self.next_s = min(self.next_s, clock_s if at_once else self.clock.round_from(clock_s))

    def make(self, active: np.ndarray, clock_s: float, used: IntervalMeter) -> None:
        """Decide for the jobs `active` [J], which are submitted and not completed, and apply the plan.

        `used` holds the energy and carbon up to now. Raises InputError if the limit, the scheduler or the frequency
        policy returns an invalid value.
        """
        renewed = self.scheduler.periodic or self.limit.renewed
        self.next_s = self.clock.round_after(clock_s) if renewed and len(active) else math.inf
        if not len(active):
            return
        self.count += 1
        until_s = clock_s + (self.clock.round_s or self.clock.sample_s)
        limit_w = self.limit.limit_w(clock_s, until_s, used.energy_j, used.carbon_g)
        self.limit_w = float(numbers(limit_w, (), 0.0, math.inf, "budget", "the watts that may be drawn"))
        view = self.view(active, clock_s)
        place = config_key("scheduler", self.scheduler)
        plan = instance(self.scheduler.plan(view), Plan, place, "its plan").checked(view, place)
        frequency = self._frequency(view, plan)
        self._allocator.apply(active, plan.gpus, frequency, self.scheduler.elastic, clock_s)
        if self.limit_w < math.inf:
            order = active if plan.order is None else active[plan.order]
            self._allocator.keep_below(self.limit_w, order, clock_s)

    def view(self, active: np.ndarray, clock_s: float) -> ClusterView:
        """The scheduler's view of these jobs at `clock_s`."""
        state = self._allocator.state
        return ClusterView(
            clock_s=clock_s,
            machine=self._allocator.machine,
            speeds=state.speeds,
            restart_s=self.clock.restart_s,
            limit_w=self.limit_w,
            job=active,
            submit_s=state.jobs.submit_s[active],
            requested=state.jobs.gpus[active],
            profile=state.jobs.profile[active],
            left=state.left_at(active, clock_s),
            gpus=state.gpus[active],
            frequency=state.frequency[active],
            gpu_s=state.gpu_s_at(active, clock_s),
            run_s=state.run_s_at(active, clock_s),
            starts=state.starts[active],
        )

    def _frequency(self, view: ClusterView, plan: Plan) -> np.ndarray:
        if plan.frequency is not None:
            return plan.frequency
        chosen = self.frequency.choose(view, plan.gpus, self._gpu)
        place, last = config_key("frequency", self.frequency), len(view.speeds.frequencies) - 1
        return integers(chosen, view.job.shape, 0, last, place, "the frequencies")
