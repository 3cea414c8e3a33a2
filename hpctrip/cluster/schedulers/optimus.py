"""Optimus (Peng et al., EuroSys 2018): GPUs go where they shorten the remaining time most."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow, one_more
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Optimus(Scheduler):
    """Elastic: each job one GPU, then again and again the step with the largest fall of remaining time for a GPU.

    It knows the jobs' lengths (Optimus predicts them).
    """

    kind = "optimus"
    periodic = True
    elastic = True
    doubling: bool = True
    """Whether a job's GPUs are doubled at each step, which fills buddy blocks; false: one more, as in Optimus."""

    def plan(self, view: ClusterView) -> Plan:
        """The shortest jobs first where there are more jobs than GPUs."""
        times_s = times(view)

        def gain_s(job: int, now: int, then: int) -> float:
            return times_s(job, now) - times_s(job, then)

        order = np.argsort(view.time_s(np.ones(len(view), int)), kind="stable")
        return Plan(grow(view, order, doubled if self.doubling else one_more, gain_s), order=order)


def times(view: ClusterView) -> Callable[[int, int], float]:
    """`times(i, n)`: the time to the end of job i of the view on n GPUs."""
    rate, profile, left = view.speeds.rate[:, :, -1], view.profile.tolist(), view.left.tolist()
    return lambda job, gpus: left[job] / rate[profile[job], gpus]
