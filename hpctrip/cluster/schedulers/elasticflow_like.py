"""Elastic sharing in the manner of ElasticFlow (Gu et al., ASPLOS 2023), without its deadlines."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class ElasticFlowLike(Scheduler):
    """Elastic: each job one GPU, shortest first, then the doubling that loses the least GPU-time.

    ElasticFlow admits jobs by their deadlines and shares what is left by the marginal return of a GPU. Here nobody has
    a deadline, so all are admitted and only the second half is left: a job whose speed at 2n GPUs is the largest share
    of twice that at n is doubled first. The order is ours.
    """

    kind = "elasticflow-like"
    elastic = True

    def plan(self, view: ClusterView) -> Plan:
        """A doubling that would not make the job faster is not taken."""
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()

        def scaling(job: int, now: int, then: int) -> float:
            faster = rate[profile[job], then] / rate[profile[job], now]
            return (then - now) * float(faster) if faster > 1 else 0.0

        order = np.argsort(view.time_s(np.ones(len(view), int)), kind="stable")
        return Plan(grow(view, order, doubled, scaling), order=order)
