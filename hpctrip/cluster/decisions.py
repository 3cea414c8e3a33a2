"""When the scheduler is asked, what it sees, and what its answer leads to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpctrip.base.validate import instance, integers, numbers
from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import Limit
from hpctrip.cluster.frequencies import FrequencyPolicy
from hpctrip.cluster.meter import Meter
from hpctrip.cluster.schedulers import Scheduler
from hpctrip.cluster.view import ClusterView, Plan
from hpctrip.config.component import config_key
from hpctrip.sim.hardware.gpu_power import Gpu


@dataclass(frozen=True)
class Rules:
    """When decisions are made and what they cost."""

    round_s: float
    """Decisions are made at multiples of this; 0: whenever a job comes or goes."""
    restart_s: float
    sample_s: float
    """Length of an interval of the results."""
    stop_s: float
    """The simulation ends at this time at the latest."""

    def round_from(self, clock_s: float) -> float:
        """The first time for a decision that is not before this one."""
        if not self.round_s:
            return clock_s
        return max(math.ceil(clock_s / self.round_s) * self.round_s, clock_s)

    def round_after(self, clock_s: float) -> float:
        """The first one that is later; `round_s` is not 0."""
        after_s = (math.floor(clock_s / self.round_s) + 1) * self.round_s
        return after_s if after_s > clock_s else after_s + self.round_s


class Decisions:
    """The scheduler, the frequency policy and the limit, and when they are asked next."""

    def __init__(
        self,
        allocator: Allocator,
        gpu: Gpu,
        scheduler: Scheduler,
        frequency: FrequencyPolicy,
        limit: Limit,
        rules: Rules,
    ):
        self.scheduler, self.frequency, self.limit, self.rules = scheduler, frequency, limit, rules
        self._allocator, self._gpu = allocator, gpu
        self.count = 0
        self.next_s = math.inf
        """When the next one is due; inf: when something happens."""
        self.limit_w = math.inf
        """What the last one allowed the cluster to draw."""

    def request(self, clock_s: float, at_once: bool = False) -> None:
        """Something has changed: decide at the next round, or now."""
        self.next_s = min(self.next_s, clock_s if at_once else self.rules.round_from(clock_s))

    def make(self, active: np.ndarray, clock_s: float, used: Meter) -> None:
        """Ask, and do what the answer is, for the jobs `active` that are here and not done."""
        renewed = self.scheduler.periodic or self.limit.renewed
        self.next_s = self.rules.round_after(clock_s) if renewed and len(active) else math.inf
        if not len(active):
            return
        self.count += 1
        until_s = clock_s + (self.rules.round_s or self.rules.sample_s)
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
        """What the scheduler sees of these jobs now."""
        state = self._allocator.state
        return ClusterView(
            clock_s=clock_s,
            machine=self._allocator.machine,
            speeds=state.speeds,
            restart_s=self.rules.restart_s,
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
