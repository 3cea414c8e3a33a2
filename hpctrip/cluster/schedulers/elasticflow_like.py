"""Elastic sharing after ElasticFlow (Gu et al., ASPLOS 2023), without deadlines."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.schedulers.growth import doubled, grow
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class ElasticFlowLike(Scheduler):
    """Elastic: gives each job one GPU, shortest first, then repeats the doubling that loses the least GPU-time.

    ElasticFlow admits jobs by their deadlines and shares the remaining GPUs by marginal return. Jobs have no deadlines
    here, so all are admitted and only the second step remains: the job whose speed on 2n GPUs is the largest fraction
    of twice its speed on n GPUs is doubled first. The order of admission is ours.
    """

    kind = "elasticflow-like"
    elastic = True

    def plan(self, view: ClusterView) -> Plan:
        """GPUs by the scaling of each job; a doubling that would not make a job faster is not taken."""
        rate, profile = view.speeds.rate[:, :, -1], view.profile.tolist()

        def scaling(job: int, now: int, then: int) -> float:
            faster = rate[profile[job], then] / rate[profile[job], now]
            return (then - now) * float(faster) if faster > 1 else 0.0

        order = np.argsort(view.time_s(np.ones(len(view), int)), kind="stable")
        return Plan(grow(view, order, doubled, scaling), order=order)
