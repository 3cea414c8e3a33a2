"""Tiresias (Gu et al., NSDI 2019): least attained service in two dimensions, discretised."""

from __future__ import annotations

import numpy as np
from pydantic import field_validator

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Tiresias(Scheduler):
    """Discretised two-dimensional least attained service.

    A job moves to the next queue after a number of GPU-seconds. Earlier queues are served first, and jobs within a
    queue in the order of submission. Preemptive, with the GPUs requested; the lengths of jobs are not used.
    """

    kind = "tiresias"
    periodic = True
    queue_limits_gpu_s: list[float] = [3250.0, 7200.0, 18000.0]
    """GPU-seconds after which a job leaves each queue but the last, rising. Pollux's simulator has one limit, 57600."""

    @field_validator("queue_limits_gpu_s")
    @classmethod
    def _rising(cls, limits: list[float]) -> list[float]:
        if any(b <= a for a, b in zip([0.0, *limits], limits, strict=False)):
            raise ValueError("must be above 0 and rise")
        return limits

    def plan(self, view: ClusterView) -> Plan:
        """Jobs by queue, then by time of submission."""
        queue = np.searchsorted(self.queue_limits_gpu_s, view.gpu_s, side="right")
        return view.in_order(np.lexsort((view.submit_s, queue)))
