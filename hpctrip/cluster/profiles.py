"""What a job of a kind does with GPUs: how fast it works and what it draws, for every number, place and frequency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from hpctrip.cluster.step_time import StepTime
from hpctrip.sim.hardware.gpu_power import Gpu


class Profile(Protocol):
    """A kind of job: a model trained with a batch size, or a whole training of which shares are counted."""

    name: str
    most_gpus: int
    """More are of no use to it, or were never measured; what a user asked for may lie above."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, share of the time that is computing), [F] each, on so many GPUs of so many nodes.

        `slowdown` [F] says how much longer computing takes than at the highest frequency.
        """
        ...


@dataclass(frozen=True)
class FixedBatch:
    """A model trained with one global batch size whatever its GPUs; its work is counted in steps.

    Where steps were measured, these hold, and the form says only how they change with frequency and with nodes beyond
    the fewest; between two measured numbers of GPUs the ratio of measured to fitted is interpolated.
    """

    name: str
    step_time: StepTime
    batch: int
    most_gpus: int
    gpus_per_node: int
    measured: Mapping[int, float] = field(default_factory=dict)
    """{GPUs: seconds of a step on as few nodes as possible}, by rising number of GPUs."""

    def speed(self, gpus: int, nodes: int, slowdown: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Steps per second, and the share of a step that is computing."""
        local = self.batch / gpus
        step_s = self.step_time.seconds(local, gpus, nodes, slowdown)
        computing = self.step_time.compute_s(local, slowdown) / step_s
        return 1 / (step_s * self._correction(gpus)), computing

    def _correction(self, gpus: int) -> float:
        """Measured over fitted at the highest frequency."""
        if not self.measured:
            return 1.0
        known = np.array(list(self.measured))
        fitted_s = self.step_time.seconds(self.batch / known, known, -(-known // self.gpus_per_node))
        ratios = np.log(np.array(list(self.measured.values())) / fitted_s)
        return float(np.exp(np.interp(np.log(gpus), np.log(known), ratios)))


class Speeds:
    """The speeds and powers of P profiles on a cluster's GPUs, in tables: nothing is computed twice.

    The tables assume that a job lies on as few nodes as it can; `at` answers for any number of nodes.
    """

    def __init__(self, profiles: Sequence[Profile], gpu: Gpu, gpus_per_node: int, most_gpus: int):
        """`most_gpus`: the largest number of GPUs that is asked for."""
        self.profiles = tuple(profiles)
        self.gpus_per_node = gpus_per_node
        self.frequencies = gpu.frequencies
        """[F] rising."""
        self._gpu = gpu
        self._slowdown = gpu.slowdown(self.frequencies)
        self._known: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        shape = (len(self.profiles), most_gpus + 1, len(self.frequencies))
        self.rate, self.power_w = np.zeros(shape), np.zeros(shape)
        """[P, n, F] work per second and watts on n GPUs; 0 on none."""
        for profile, gpus in np.ndindex(shape[0], most_gpus):
            self.rate[profile, gpus + 1], self.power_w[profile, gpus + 1] = self.at(
                profile, gpus + 1, self.fewest_nodes(gpus + 1)
            )
        self.most_gpus = np.array([min(profile.most_gpus, most_gpus) for profile in self.profiles])
        """[P]"""

    def fewest_nodes(self, gpus: np.ndarray | int) -> np.ndarray | int:
        """On which so many GPUs can lie."""
        return -(-gpus // self.gpus_per_node)

    def at(self, profile: int, gpus: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """(work per second, watts), [F] each."""
        key = (profile, gpus, nodes)
        if key not in self._known:
            rate, computing = self.profiles[profile].speed(gpus, nodes, self._slowdown)
            self._known[key] = (rate, gpus * self._gpu.power_w(self.frequencies, computing))
        return self._known[key]
