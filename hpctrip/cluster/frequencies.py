"""Frequency policies: choose the GPU frequency of each job if the scheduler does not."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.cluster.view import ClusterView
from hpctrip.config.component import Component, Registry
from hpctrip.sim.hardware.gpu_power import Gpu

FREQUENCIES = Registry("frequency policy", default="highest")


class FrequencyPolicy(Component):
    """Base class of frequency policies."""

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """Choose [J] indices into `view.speeds.frequencies` for the jobs of the view, which get `gpus` [J] GPUs."""
        raise NotImplementedError


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
        return _least(*_costs(view, gpus), 1.0, 0.0)


@FREQUENCIES.add
class ZeusCost(FrequencyPolicy):
    """Minimises the cost of Zeus for each job, eta E + (1 - eta) P_max T (You et al., NSDI 2023)."""

    kind = "zeus"
    eta: float = Field(0.5, ge=0, le=1)
    """Weight of energy against time. 1: energy alone counts; 0: time alone."""

    def choose(self, view: ClusterView, gpus: np.ndarray, gpu: Gpu) -> np.ndarray:
        """The indices of least cost. P_max is the power of its GPUs when always computing at the highest frequency."""
        top_w = np.maximum(gpus, 1)[:, None] * float(gpu.full_power_w(view.speeds.frequencies[-1]))
        return _least(*_costs(view, gpus), self.eta, (1 - self.eta) * top_w)


def _costs(view: ClusterView, gpus: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, watts) for a unit of work, [J, F] each; for a job without GPUs as on one GPU."""
    rows = (view.profile, np.maximum(gpus, 1))
    return 1 / view.speeds.rate[rows], view.speeds.power_w[rows]


def _least(seconds: np.ndarray, watts: np.ndarray, eta: float, time_w: np.ndarray | float) -> np.ndarray:
    return np.argmin(seconds * (eta * watts + time_w), axis=1)
