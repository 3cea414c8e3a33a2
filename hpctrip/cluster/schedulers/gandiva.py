"""Time-slicing as in Gandiva (Xiao et al., OSDI 2018), without its packing of several jobs on a GPU."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Gandiva(Scheduler):
    """Jobs take turns: those that have had the fewest slices come next, with the GPUs that users asked for.

    Jobs of equal numbers of GPUs share nodes, so each such class is given GPUs in proportion to what it asks for, and
    turns are taken within it; GPUs that a class cannot use go to the others. That reading is ours.
    """

    kind = "gandiva"
    periodic = True
    slice_s: Seconds = Field(3600.0, gt=0, le=1e7)
    """Time that a job keeps its GPUs while others wait. Ours: Gandiva's minute would go by in restarts of 30 s."""

    def plan(self, view: ClusterView) -> Plan:
        """Every class within its share, then whoever fits."""
        turns = np.floor(view.run_s / self.slice_s)
        order = np.lexsort((view.submit_s, view.gpus == 0, turns))
        asked, total = view.requested, view.requested.sum()
        kept = np.zeros(len(view), bool)
        for size in np.unique(asked).tolist():
            members = order[asked[order] == size]
            share = view.machine.num_gpus * min(1.0, members.size * size / total)
            kept[members[: int(share // size)]] = True
        return view.in_order(np.concatenate([order[kept[order]], order[~kept[order]]]))
