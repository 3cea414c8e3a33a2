"""Schedulers that give each job the GPUs requested: queues, time slices, leases, and oracles of the remaining time."""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field, field_validator

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.cluster.schedulers.base import SCHEDULERS, ClusterView, Plan, Scheduler

_ROUNDING = 1e-9
"""Relative tolerance of a job's time on GPUs, a sum of rounds: 3 x 1.4 s are a whole lease of 4.2 s."""


@SCHEDULERS.add
class Fifo(Scheduler):
    """Starts jobs in the order of submission with the GPUs requested; not preemptive."""

    kind = "fifo"
    backfill: bool = False
    """Whether a job may start before an earlier one for which too few GPUs are free, even if that one then waits
    longer."""

    def plan(self, view: ClusterView) -> Plan:
        """Running jobs first, then waiting jobs in the order of submission."""
        order = np.argsort(view.gpus == 0, kind="stable")
        return view.in_order(order, skip=self.backfill)


@SCHEDULERS.add
class EasyBackfill(Scheduler):
    """FIFO with EASY backfilling (Lifka, JSSPP 1995): a later job may start before the first job that waits, if that
    job does not start later for it; not preemptive.

    An oracle: it uses the exact remaining times, without restarts, where EASY uses the estimates of users. Under a
    budget no job starts early, as it would take power from those for which the first one waits.
    """

    kind = "easy-backfill"

    def plan(self, view: ClusterView) -> Plan:
        """Running jobs, waiting jobs by submission, then those that end before the first job left has its GPUs, or
        fit beside it."""
        order = np.argsort(view.gpus == 0, kind="stable")
        plan = view.in_order(order, skip=False)
        waiting = order[plan.gpus[order] == 0].tolist()
        if not waiting or view.limit_w < np.inf:
            return plan
        gpus, wanted, remaining_s = plan.gpus, view.requested, view.time_s(view.requested)
        first = waiting.pop(0)
        by_end = np.argsort(np.where(gpus > 0, remaining_s, np.inf), kind="stable")
        free = view.machine.num_gpus - int(gpus.sum())
        free_after = free + np.cumsum(gpus[by_end])
        at = int(np.argmax(free_after >= wanted[first]))
        starts_s, beside = remaining_s[by_end[at]], int(free_after[at] - wanted[first])
        for job in waiting:
            ends_before = remaining_s[job] <= starts_s
            if wanted[job] <= (free if ends_before else min(free, beside)):
                gpus[job] = wanted[job]
                free -= int(wanted[job])
                beside -= 0 if ends_before else int(wanted[job])
        return plan


@SCHEDULERS.add
class Srtf(Scheduler):
    """Shortest remaining time first; preemptive. An oracle: it uses the exact remaining times."""

    kind = "srtf"

    def plan(self, view: ClusterView) -> Plan:
        """Jobs by remaining time on the GPUs requested."""
        return view.in_order(np.argsort(view.time_s(view.requested), kind="stable"))


@SCHEDULERS.add
class Srsf(Scheduler):
    """Shortest remaining service (time x GPUs, NSDI 2019) first; preemptive. An oracle, as srtf."""

    kind = "srsf"

    def plan(self, view: ClusterView) -> Plan:
        """Jobs by remaining GPU-seconds on the GPUs requested."""
        return view.in_order(np.argsort(view.time_s(view.requested) * view.requested, kind="stable"))


@SCHEDULERS.add
class Tiresias(Scheduler):
    """Tiresias (Gu et al., NSDI 2019): discretised two-dimensional least attained service.

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


@SCHEDULERS.add
class Gandiva(Scheduler):
    """Time-slicing as in Gandiva (Xiao et al., OSDI 2018), without packing several jobs on a GPU: the jobs that have
    had the fewest slices run next.

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
        slices = np.floor(view.run_s / self.slice_s * (1 + _ROUNDING))
        order = np.lexsort((view.submit_s, view.gpus == 0, slices))
        requested, total = view.requested, view.requested.sum()
        within_share = np.zeros(len(view), bool)
        for size in np.unique(requested).tolist():
            members = order[requested[order] == size]
            within_share[members[: view.machine.num_gpus * members.size // total]] = True
        return view.in_order(np.concatenate([order[within_share[order]], order[~within_share[order]]]))


@SCHEDULERS.add
class Themis(Scheduler):
    """Max-min fairness of finish times after Themis (Mahajan et al., NSDI 2020): at the end of a lease the jobs with
    the largest rho are served first.

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
        if not math.isclose(rounds, round(rounds), rel_tol=_ROUNDING):
            least_s = round_s * max(1, round(rounds))
            place = f"scheduler.lease_s = {self.lease_s:g}"
            raise InputError(place, f"is not a multiple of clock.round_s = {round_s:g}", f"give {least_s:g}")

    def plan(self, view: ClusterView) -> Plan:
        """Jobs within a lease first, then the others by decreasing rho."""
        remaining_s = view.time_s(view.requested)
        done_s = view.gpu_s / view.requested
        share = np.minimum(1.0, view.machine.num_gpus / (len(view) * view.requested))
        rho = (view.clock_s - view.submit_s + remaining_s) / ((done_s + remaining_s) / share)
        leases = view.run_s / self.lease_s
        leased = (view.gpus > 0) & (np.abs(leases - np.rint(leases)) > _ROUNDING * leases)
        return view.in_order(np.lexsort((view.submit_s, -rho, ~leased)))
