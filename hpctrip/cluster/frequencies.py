"""Frequency policies: choose the GPU frequency of each job if the scheduler does not."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.validate import integers
from hpctrip.cluster.schedulers.base import ClusterView
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.hardware.gpu_power import Gpu

FREQUENCIES = Registry("frequency policy", default="highest")


class FrequencyPolicy(Component):
    """Base class of frequency policies."""

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """Choose [J] indices into `view.speeds.frequencies` for the jobs of the view, which get `gpus` [J] GPUs."""
        raise NotImplementedError

    def checked_choice(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """`choose`. Raises InputError where these are no indices of frequencies."""
        place, last = config_key("frequency", self), len(view.speeds.frequencies) - 1
        return integers(self.choose(view, gpus, gpu), view.job.shape, 0, last, place, "the frequencies")


@FREQUENCIES.add
class Highest(FrequencyPolicy):
    """Runs every job at the highest frequency."""

    kind = "highest"

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """The index of the highest frequency, for every job."""
        return np.full(len(view), len(view.speeds.frequencies) - 1)


@FREQUENCIES.add
class LeastEnergy(FrequencyPolicy):
    """Runs each job at the frequency at which its GPUs need the least energy."""

    kind = "least-energy"

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """The indices that minimise power / rate."""
        return ZeusCost(eta=1.0).choose(view, gpus, gpu)


@FREQUENCIES.add
class ZeusCost(FrequencyPolicy):
    """Minimises the cost of Zeus for each job, eta E + (1 - eta) P_max T (You et al., NSDI 2023)."""

    kind = "zeus"
    eta: float = Field(0.5, ge=0, le=1)
    """Weight of energy against time. 1: energy alone counts; 0: time alone."""

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """The indices of least cost. P_max is the power of its GPUs when always computing at the highest frequency."""
        gpus = np.maximum(gpus, 1)  # a job without GPUs is treated as on one
        rate, watts = view.speeds.rate[view.profile, gpus], view.speeds.power_w[view.profile, gpus]
        top_w = gpus[:, None] * float(gpu.full_power_w(view.speeds.frequencies[-1]))
        return np.argmin(1 / rate * (self.eta * watts + (1 - self.eta) * top_w), axis=1)
