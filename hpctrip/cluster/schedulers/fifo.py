"""First come, first served."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Fifo(Scheduler):
    """Jobs start in the order of their submission with the GPUs that they asked for, and run to their end."""

    kind = "fifo"
    backfill: bool = False
    """Whether a job may start before an earlier one for which too few GPUs are free."""

    def plan(self, view: ClusterView) -> Plan:
        """Those that run go on; then in order of submission."""
        order = np.argsort(view.gpus == 0, kind="stable")
        return view.in_order(order, skip=self.backfill)
