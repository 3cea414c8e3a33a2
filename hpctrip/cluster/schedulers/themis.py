"""Finish-time fairness as in Themis (Mahajan et al., NSDI 2020), greedy instead of by auctions."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan


@SCHEDULERS.add
class Themis(Scheduler):
    """Greedy max-min fairness of finish times: with each lease the jobs that are worst off are served first.

    rho = (time since submission + time to the end on the GPUs asked for) / (time that the job would take with a share
    of 1 / J of the cluster, J the jobs that are here). Auctions and their bids are left out: a reading of ours.
    """

    kind = "themis"
    periodic = True
    lease_s: Seconds = Field(1200.0, gt=0, le=1e7)
    """A job that was given GPUs keeps them so long."""

    def check(self, round_s: float) -> None:
        """A lease ends with a round."""
        rounds = self.lease_s / round_s
        if rounds != round(rounds):
            least_s = round_s * max(1, round(rounds))
            place = f"scheduler.lease_s = {self.lease_s:g}"
            raise InputError(place, f"is no multiple of clock.round_s = {round_s:g}", f"give {least_s:g}")

    def plan(self, view: ClusterView) -> Plan:
        """Those within a lease go on, then by falling rho."""
        remaining_s = view.time_s(view.requested)
        done_s = view.gpu_s / view.requested
        share = np.minimum(1.0, view.machine.num_gpus / (len(view) * view.requested))
        rho = (view.clock_s - view.submit_s + remaining_s) / ((done_s + remaining_s) / share)
        leased = (view.gpus > 0) & (view.run_s % self.lease_s > 0)
        return view.in_order(np.lexsort((view.submit_s, -rho, ~leased)))
