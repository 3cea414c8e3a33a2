"""Oracles that know how long every job still takes."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Srtf(Scheduler):
    """Shortest remaining time first: preemptive, with the GPUs that users asked for."""

    kind = "srtf"

    def plan(self, view: ClusterView) -> Plan:
        """By the time to the end on the GPUs asked for."""
        return view.in_order(np.argsort(view.time_s(view.requested), kind="stable"))


@SCHEDULERS.add
class Srsf(Scheduler):
    """Shortest remaining service first: time times GPUs (Tiresias, NSDI 2019, calls it so)."""

    kind = "srsf"

    def plan(self, view: ClusterView) -> Plan:
        """By the GPU-seconds to the end on the GPUs asked for."""
        return view.in_order(np.argsort(view.time_s(view.requested) * view.requested, kind="stable"))
