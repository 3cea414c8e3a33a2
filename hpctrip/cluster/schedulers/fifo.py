"""First in, first out."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Fifo(Scheduler):
    """Starts jobs in the order of submission with the GPUs requested; not preemptive."""

    kind = "fifo"
    backfill: bool = False
    """Whether a job may start before an earlier one for which too few GPUs are free."""

    def plan(self, view: ClusterView) -> Plan:
        """Running jobs first, then waiting jobs in the order of submission."""
        order = np.argsort(view.gpus == 0, kind="stable")
        return view.in_order(order, skip=self.backfill)
