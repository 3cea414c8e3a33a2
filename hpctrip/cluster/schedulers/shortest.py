"""Oracle schedulers, which use the exact remaining time of every job."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Srtf(Scheduler):
    """Shortest remaining time first; preemptive, with the GPUs requested."""

    kind = "srtf"

    def plan(self, view: ClusterView) -> Plan:
        """Jobs by remaining time on the GPUs requested."""
        return view.in_order(np.argsort(view.time_s(view.requested), kind="stable"))


@SCHEDULERS.add
class Srsf(Scheduler):
    """Shortest remaining service first (time times GPUs; named in Tiresias, NSDI 2019); preemptive."""

    kind = "srsf"

    def plan(self, view: ClusterView) -> Plan:
        """Jobs by remaining GPU-seconds on the GPUs requested."""
        return view.in_order(np.argsort(view.time_s(view.requested) * view.requested, kind="stable"))
