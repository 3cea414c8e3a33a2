"""Interface of schedulers: pure functions from a view of the cluster to a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.validate import integers
from hpctrip.cluster.models import Speeds
from hpctrip.cluster.placement import Machine
from hpctrip.config.component import Component, Registry

SCHEDULERS = Registry("scheduler", default="powerflow")


@dataclass(frozen=True)
class Plan:
    """Decision of a scheduler: the GPUs, frequency and importance of each of the J jobs of a view."""

    gpus: np.ndarray
    """[J] number of GPUs; 0: the job waits."""
    frequency: np.ndarray | None = None
    """[J] index into `speeds.frequencies`; None: the frequency policy of the input decides."""
    order: np.ndarray | None = None
    """[J] jobs by decreasing importance, the last of which are paused if power is short; None: in the view's order."""

    def checked(self, view: ClusterView, place: str) -> Self:
        """The validated plan. Raises InputError at `place` (the scheduler's key) if it is not valid for this view."""
        shape, most = view.job.shape, view.machine.num_gpus
        gpus = integers(self.gpus, shape, 0, most, place, "the plan's gpus")
        if gpus.sum() > most:
            raise InputError(place, f"gave out {gpus.sum():,} GPUs", f"the cluster has {most:,}")
        frequency, order = self.frequency, self.order
        if frequency is not None:
            last = len(view.speeds.frequencies) - 1
            frequency = integers(frequency, shape, 0, last, place, "the plan's frequency")
        if order is not None:
            order = integers(order, shape, 0, max(len(gpus) - 1, 0), place, "the plan's order")
            if np.bincount(order).max(initial=0) > 1:
                raise InputError(place, "gave an order that names a job twice", "each job stands in it once")
        return replace(self, gpus=gpus, frequency=frequency, order=order)


@dataclass(frozen=True)
class ClusterView:
    """State of the cluster and its J active jobs at a decision.

    Active jobs are submitted and not completed. They are in the order of submission.
    """

    clock_s: float
    machine: Machine
    speeds: Speeds
    restart_s: float
    """Time without progress after a job is started on other GPUs."""
    limit_w: float
    """Power limit of the whole cluster until the next decision, in watts; inf: no limit."""
    job: np.ndarray
    """[J] index of the job in the trace."""
    submit_s: np.ndarray
    """[J] time of submission."""
    requested: np.ndarray
    """[J] number of GPUs requested by the user."""
    profile: np.ndarray
    """[J] index into `speeds.profiles`."""
    left: np.ndarray
    """[J] remaining work, in the profile's unit."""
    gpus: np.ndarray
    """[J] present number of GPUs; 0: the job waits."""
    frequency: np.ndarray
    """[J] index of the frequency at which the job ran last."""
    gpu_s: np.ndarray
    """[J] GPU-seconds up to now."""
    run_s: np.ndarray
    """[J] time with GPUs up to now."""
    starts: np.ndarray
    """[J] number of starts."""
    frequency_on: Callable[[np.ndarray], np.ndarray | int] = lambda gpus: -1
    """[J] index of the frequency at which the jobs would run on `gpus` [J] GPUs: that of the frequency policy, as far
    as the power limit left it at the last decision."""

    def __len__(self) -> int:
        return len(self.job)

    def rate(self, gpus: np.ndarray, frequency: np.ndarray | int | None = None) -> np.ndarray:
        """[J] work per second on `gpus` [J] packed GPUs; 0 on none. The default is `frequency_on`."""
        frequency = self.frequency_on(gpus) if frequency is None else frequency
        return self.speeds.rate[self.profile, gpus, frequency]

    def time_s(self, gpus: np.ndarray, frequency: np.ndarray | int | None = None) -> np.ndarray:
        """[J] remaining time on `gpus` [J] GPUs, without restarts; inf on none. Default as in `rate`."""
        with np.errstate(divide="ignore"):
            return self.left / self.rate(gpus, frequency)

    def most_gpus(self) -> np.ndarray:
        """[J] maximum number of GPUs to which an elastic scheduler may scale a job."""
        return np.minimum(self.speeds.most_gpus[self.profile], self.machine.num_gpus)

    def shortest_first(self) -> np.ndarray:
        """[J] the jobs by their remaining time on one GPU."""
        return np.argsort(self.time_s(np.ones(len(self), int)), kind="stable")

    def in_order(self, order: np.ndarray, skip: bool = True) -> Plan:
        """Plan that gives jobs the GPUs requested, in this order, while GPUs last.

        A job for which too few GPUs are left is skipped (`skip`), or all jobs after it wait.
        """
        gpus, free = np.zeros(len(self), int), self.machine.num_gpus
        for job, wanted in zip(order.tolist(), self.requested[order].tolist(), strict=True):
            if wanted <= free:
                gpus[job] = wanted
                free -= wanted
            elif not skip:
                break
            if not free:
                break
        return Plan(gpus, order=order)


class Scheduler(Component):
    """Base class of schedulers. A scheduler has no memory: its plan depends on the view alone."""

    periodic: ClassVar[bool] = False
    """Whether it decides every round, as its plan changes with time; else only after a submission or completion."""
    elastic: ClassVar[bool] = False
    """Whether a job that cannot be placed with the planned number of GPUs may start with fewer."""

    def check(self, round_s: float) -> None:
        """Raise InputError if the scheduler's own times are incompatible with rounds of `round_s` seconds."""

    def plan(self, view: ClusterView) -> Plan:
        """Decide how many GPUs each of the J jobs of the view gets; in total at most those of the cluster."""
        raise NotImplementedError
