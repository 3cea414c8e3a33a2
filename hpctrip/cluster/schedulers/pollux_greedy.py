"""Greedy maximisation of the fitness function of Pollux (Qiao et al., OSDI 2021)."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow, one_more
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class PolluxGreedy(Scheduler):
    """Elastic: maximises the power mean, p = -1, of the jobs' speed-ups over their fair shares.

    A greedy ascent replaces Pollux's genetic search over 100 generations. As in Pollux, the speed-up of a resized job
    is multiplied by (age - delay x restarts) / (age + delay), where delay is the restart time. Goodput is the rate of
    the profile, which is throughput unless the job adapts its batch size.
    """

    kind = "pollux-greedy"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether each step doubles a job's GPUs, which fills buddy blocks; false: one more GPU."""

    def plan(self, view: ClusterView) -> Plan:
        """GPUs that minimise the sum of 1 / speed-up; jobs with the fewest GPU-seconds come first."""
        fair = np.clip(-(-view.machine.num_gpus // max(len(view), 1)), 1, view.most_gpus())
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()
        fair_rate = view.rate(fair)
        age_s, delay_s = view.clock_s - view.submit_s, view.restart_s
        restart_factor = np.maximum(age_s - view.starts * delay_s, 0.0) / np.maximum(age_s + delay_s, 1e-9)
        held = view.gpus.tolist()

        def unfitness(job: int, gpus: int) -> float:
            factor = 1.0 if gpus == held[job] or not held[job] else max(float(restart_factor[job]), 1e-6)
            return float(fair_rate[job]) / (float(rate[profile[job], gpus]) * factor)

        def gain(job: int, now: int, then: int) -> float:
            if held[job] > now:  # up to its present number of GPUs a job needs no restart
                return float(fair_rate[job]) * float(
                    1 / rate[profile[job], now] - 1 / rate[profile[job], then]
                )
            return unfitness(job, now) - unfitness(job, then)

        order = np.lexsort((view.submit_s, view.gpu_s))
        return Plan(grow(view, order, doubled if self.doubling else one_more, gain), order=order)
