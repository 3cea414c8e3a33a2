"""Profiles of jobs: speed and power by number of GPUs, number of nodes and frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hpctrip.cluster.step_time import StepTime
from hpctrip.sim.hardware.gpu_power import Gpu


class Profile(Protocol):
    """Speed of one type of job, for example a model trained with one batch size."""

    name: str
    most_gpus: int
    """Maximum number of GPUs to which elastic schedulers may scale it; a user may request more."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, computing share of the time), [F] each, on `gpus` GPUs of `nodes` nodes.

        `slowdown` [F]: computing time at each frequency relative to the highest frequency.
        """
        ...


@dataclass(frozen=True)
class FixedBatch:
    """A model trained with a fixed global batch size; its work is counted in steps.

    Measured step times are used where there are any; the fitted form then gives only their dependence on frequency and
    on nodes beyond the fewest. Between two measured numbers of GPUs the ratio of measured to fitted time is
    interpolated.
    """

    name: str
    step_time: StepTime
    batch: int
    most_gpus: int
    gpus_per_node: int
    measured: Mapping[int, float] = field(default_factory=dict)
    """{GPUs: seconds of a step on as few nodes as possible}, by rising number of GPUs."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Steps per second, and the computing share of a step, [F] each; see `Profile.speed`."""
        local = self.batch / gpus
        step_s = self.step_time.seconds(local, gpus, nodes, slowdown)
        computing = self.step_time.compute_s(local, slowdown) / step_s
        return 1 / (step_s * self._correction(gpus)), computing

    def _correction(self, gpus: int) -> float:
        """Ratio of measured to fitted step time at the highest frequency."""
        if not self.measured:
            return 1.0
        counts = np.array(list(self.measured))
        fitted_s = self.step_time.seconds(self.batch / counts, counts, -(-counts // self.gpus_per_node))
        ratios = np.log(np.array(list(self.measured.values())) / fitted_s)
        return float(np.exp(np.interp(np.log(gpus), np.log(counts), ratios)))


class Speeds:
    """Tables of the speed and power of P profiles on a cluster's GPUs.

    The tables assume that a job is packed on as few nodes as possible; `at` takes any number of nodes.
    """

    def __init__(self, profiles: Sequence[Profile], gpu: Gpu, gpus_per_node: int, most_gpus: int):
        """`most_gpus`: the largest number of GPUs in the tables."""
        self.profiles = tuple(profiles)
        self.gpus_per_node = gpus_per_node
        self.frequencies = gpu.frequencies
        """[F] rising fractions of the highest frequency."""
        self._gpu = gpu
        self._slowdown = gpu.slowdown(self.frequencies)
        self._cache: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        shape = (len(self.profiles), most_gpus + 1, len(self.frequencies))
        self.rate, self.power_w = np.zeros(shape), np.zeros(shape)
        """[P, n, F] work per second and watts on n GPUs; 0 on none."""
        for profile, gpus in np.ndindex(shape[0], most_gpus):
            self.rate[profile, gpus + 1], self.power_w[profile, gpus + 1] = self.at(
                profile, gpus + 1, self.fewest_nodes(gpus + 1)
            )
        self.most_gpus = np.array([min(profile.most_gpus, most_gpus) for profile in self.profiles])
        """[P] maximum number of GPUs for elastic schedulers."""

    def fewest_nodes(self, gpus: np.ndarray | int) -> np.ndarray | int:
        """The smallest number of nodes that hold `gpus` GPUs."""
        return -(-gpus // self.gpus_per_node)

    def at(self, profile: int, gpus: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, watts), [F] each, of a profile on `gpus` GPUs of `nodes` nodes; cached."""
        key = (profile, gpus, nodes)
        if key not in self._cache:
            rate, computing = self.profiles[profile].speed(gpus, nodes, self._slowdown)
            self._cache[key] = (rate, gpus * self._gpu.power_w(self.frequencies, computing))
        return self._cache[key]
