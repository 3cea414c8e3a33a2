"""Pollux's fitness (Qiao et al., OSDI 2021), maximised greedily."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow, one_more
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class PolluxGreedy(Scheduler):
    """Elastic: maximises the power mean, p = -1, of the jobs' speed-ups over their fair shares.

    A greedy ascent stands for Pollux's genetic search of 100 generations, hence the name. A job that is resized counts
    for less, by (age - 30 s x restarts) / (age + 30 s), as there. Goodput is that of the profile: where it does not
    adapt its batch size, goodput is throughput.
    """

    kind = "pollux-greedy"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether a job's GPUs are doubled at each step, which fills buddy blocks; false: one more."""

    def plan(self, view: ClusterView) -> Plan:
        """The sum of 1 / speed-up falls with every step; jobs that have had the least come first."""
        fair = np.clip(-(-view.machine.num_gpus // max(len(view), 1)), 1, view.most_gpus())
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()
        fair_rate = view.rate(fair)
        age_s, delay_s = view.clock_s - view.submit_s, view.restart_s
        kept = np.maximum(age_s - view.starts * delay_s, 0.0) / np.maximum(age_s + delay_s, 1e-9)
        held = view.gpus.tolist()

        def unfitness(job: int, gpus: int) -> float:
            factor = 1.0 if gpus == held[job] or not held[job] else max(float(kept[job]), 1e-6)
            return float(fair_rate[job]) / (float(rate[profile[job], gpus]) * factor)

        def gain(job: int, now: int, then: int) -> float:
            if held[job] > now:  # on the way to what it has, no restart is paid
                return float(fair_rate[job]) * float(
                    1 / rate[profile[job], now] - 1 / rate[profile[job], then]
                )
            return unfitness(job, now) - unfitness(job, then)

        order = np.lexsort((view.submit_s, view.gpu_s))
        return Plan(grow(view, order, doubled if self.doubling else one_more, gain), order=order)
