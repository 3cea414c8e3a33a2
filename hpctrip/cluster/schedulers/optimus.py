"""Optimus (Peng et al., EuroSys 2018): greedy minimisation of remaining remaining_times."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow, one_more
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Optimus(Scheduler):
    """Elastic: gives each job one GPU, then repeats the step that shortens the remaining time most per GPU.

    The exact lengths of jobs are used; Optimus predicts them.
    """

    kind = "optimus"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether each step doubles a job's GPUs, which fills buddy blocks; false: one more GPU, as in Optimus."""

    def plan(self, view: ClusterView) -> Plan:
        """GPUs by the time that they save; the shortest jobs come first if there are more jobs than GPUs."""
        times_s = remaining_times(view)

        def gain_s(job: int, now: int, then: int) -> float:
            return times_s(job, now) - times_s(job, then)

        order = np.argsort(view.time_s(np.ones(len(view), int)), kind="stable")
        return Plan(grow(view, order, doubled if self.doubling else one_more, gain_s), order=order)


def remaining_times(view: ClusterView) -> Callable[[int, int], float]:
    """Return f(i, n), the remaining time of job i of the view on n GPUs at the highest frequency."""
    rate, profile, left = view.speeds.rate[:, :, -1], view.profile.tolist(), view.left.tolist()
    return lambda job, gpus: left[job] / rate[profile[job], gpus]
