"""Tiresias (Gu et al., NSDI 2019): least attained service in two dimensions, discretised."""

from __future__ import annotations

import numpy as np
from pydantic import field_validator

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Tiresias(Scheduler):
    """Discretised 2D-LAS: a job sinks to the next queue when it has had so many GPU-seconds; upper queues first, within
    one by the time of submission. Preemptive, with the GPUs that users asked for; needs no knowledge of lengths.
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
        """By queue, then by submission."""
        queue = np.searchsorted(self.queue_limits_gpu_s, view.gpu_s, side="right")
        return view.in_order(np.lexsort((view.submit_s, queue)))
