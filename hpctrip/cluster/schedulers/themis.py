"""Finish-time fairness after Themis (Mahajan et al., NSDI 2020), greedy instead of by auctions."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Themis(Scheduler):
    """Max-min fairness of finish times: at the end of a lease the jobs with the largest rho are served first.

    rho = (time since submission + remaining time on the GPUs requested) / (time of the whole job on 1 / J of the
    cluster, with J active jobs). Themis' auctions are left out; the simplification is ours.
    """

    kind = "themis"
    periodic = True
    lease_s: Seconds = Field(1200.0, gt=0, le=1e7)
    """Time that a started job keeps its GPUs."""

    def check(self, round_s: float) -> None:
        """Raise InputError if a lease is not a multiple of a round."""
        rounds = self.lease_s / round_s
        if rounds != round(rounds):
            least_s = round_s * max(1, round(rounds))
            place = f"scheduler.lease_s = {self.lease_s:g}"
            raise InputError(place, f"is no multiple of clock.round_s = {round_s:g}", f"give {least_s:g}")

    def plan(self, view: ClusterView) -> Plan:
        """Jobs within a lease first, then the others by decreasing rho."""
        remaining_s = view.time_s(view.requested)
        done_s = view.gpu_s / view.requested
        share = np.minimum(1.0, view.machine.num_gpus / (len(view) * view.requested))
        rho = (view.clock_s - view.submit_s + remaining_s) / ((done_s + remaining_s) / share)
        leased = (view.gpus > 0) & (view.run_s % self.lease_s > 0)
        return view.in_order(np.lexsort((view.submit_s, -rho, ~leased)))
