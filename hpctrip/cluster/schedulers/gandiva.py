"""Time-slicing as in Gandiva (Xiao et al., OSDI 2018), without packing several jobs on a GPU."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Gandiva(Scheduler):
    """Time-slices jobs: those that have had the fewest slices run next, with the GPUs requested.

    Jobs that request the same number of GPUs form a class. Each class gets GPUs in proportion to the total that it
    requests, and its jobs take turns; GPUs that a class cannot use go to the other classes. This interpretation of the
    paper is ours.
    """

    kind = "gandiva"
    periodic = True
    slice_s: Seconds = Field(3600.0, gt=0, le=1e7)
    """Time that a job keeps its GPUs while others wait. Gandiva uses a minute, too short for restarts of 30 s."""

    def plan(self, view: ClusterView) -> Plan:
        """Jobs within the share of their class first, then any others that fit."""
        slices = np.floor(view.run_s / self.slice_s)
        order = np.lexsort((view.submit_s, view.gpus == 0, slices))
        requested, total = view.requested, view.requested.sum()
        within_share = np.zeros(len(view), bool)
        for size in np.unique(requested).tolist():
            members = order[requested[order] == size]
            share = view.machine.num_gpus * min(1.0, members.size * size / total)
            within_share[members[: int(share // size)]] = True
        return view.in_order(np.concatenate([order[within_share[order]], order[~within_share[order]]]))
