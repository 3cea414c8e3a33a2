"""What a scheduler sees of the cluster and its jobs, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.validate import integers
from hpctrip.cluster.machine import Machine
from hpctrip.cluster.profiles import Speeds


@dataclass(frozen=True)
class Plan:
    """Who gets how many GPUs, and how fast they run."""

    gpus: np.ndarray
    """[J] GPUs of every job of the view; 0: it waits."""
    frequency: np.ndarray | None = None
    """[J] index into the speeds' frequencies; None: the input's frequency policy decides."""
    order: np.ndarray | None = None
    """[J] jobs of the view by falling importance; None: as they are. Where power is short the last are paused."""

    def checked(self, view: ClusterView, place: str) -> Self:
        """The same, or InputError at `place` (the scheduler's) where it is no plan for this view."""
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
            if len(np.unique(order)) != len(order):
                raise InputError(place, "gave an order that names a job twice", "each job stands in it once")
        return replace(self, gpus=gpus, frequency=frequency, order=order)


@dataclass(frozen=True)
class ClusterView:
    """The J jobs that have been submitted and are not done, in the order of their submission, at one decision."""

    clock_s: float
    machine: Machine
    speeds: Speeds
    restart_s: float
    """Time without progress after every start on other GPUs."""
    limit_w: float
    """Power that the whole cluster may draw until the next decision; inf: no limit."""
    job: np.ndarray
    """[J] index in the trace."""
    submit_s: np.ndarray
    requested: np.ndarray
    """[J] GPUs that the user asked for."""
    profile: np.ndarray
    """[J] index into the speeds' profiles."""
    left: np.ndarray
    """[J] work that is left, in the profile's unit."""
    gpus: np.ndarray
    """[J] GPUs that it has; 0: it waits."""
    frequency: np.ndarray
    """[J] index of the frequency at which it ran last."""
    gpu_s: np.ndarray
    """[J] GPU-seconds that it has had."""
    run_s: np.ndarray
    """[J] time that it has had GPUs."""
    starts: np.ndarray
    """[J] how often it has been started."""

    def __len__(self) -> int:
        return len(self.job)

    def rate(self, gpus: np.ndarray, frequency: np.ndarray | int = -1) -> np.ndarray:
        """[J] work per second on so many GPUs, packed; 0 on none. By default at the highest frequency."""
        return self.speeds.rate[self.profile, gpus, frequency]

    def time_s(self, gpus: np.ndarray, frequency: np.ndarray | int = -1) -> np.ndarray:
        """[J] time to the end on so many GPUs, without restarts; inf on none."""
        with np.errstate(divide="ignore"):
            return self.left / self.rate(gpus, frequency)

    def energy_j(self, gpus: np.ndarray, frequency: np.ndarray | int = -1) -> np.ndarray:
        """[J] energy of the job's GPUs to the end, one or more for each."""
        return self.time_s(gpus, frequency) * self.speeds.power_w[self.profile, gpus, frequency]

    def most_gpus(self) -> np.ndarray:
        """[J] the most GPUs to which an elastic scheduler may scale a job."""
        return np.minimum(self.speeds.most_gpus[self.profile], self.machine.num_gpus)

    def in_order(self, order: np.ndarray, skip: bool = True) -> Plan:
        """The jobs, best first, get what they asked for while GPUs last. A job for which too few are left is passed
        over (`skip`), or everybody behind it waits."""
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
