"""Efficient configurations of one type of job, from the least energy to the fastest, for PowerFlow.

Each pair of a number of GPUs (1, 2, 4, ...) and a frequency is a point (E, T): energy and time for a unit of work. The
ladder starts at one GPU at its frequency of least energy. Each step leads to the point with the largest relative gain,
ln(T / T') / ln(E' / E), among all faster points. So the ladder follows the lower hull of the points, gains decrease
from step to step, and dominated points are never used. As gains are relative, they are the same for all jobs of a type,
regardless of their remaining work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpctrip.cluster.profiles import Speeds

_LEAST_COST = 1e-3
"""Lower bound of the relative energy cost of a step in the computation of its gain."""


@dataclass(frozen=True)
class Step:
    """A configuration, and the gain of the step that leads to it."""

    gpus: int
    frequency: int
    seconds: float
    """Time for a unit of work."""
    joules: float
    """Energy for a unit of work, including the share of the hosts."""
    gain: float
    """Relative decrease of time per relative increase of energy; inf for the first configuration."""

    @property
    def watts(self) -> float:
        """Mean power while the job works."""
        return self.joules / self.seconds


class Ladder:
    """Efficient configurations of one profile. `host_w` is the power of a host per GPU of the host."""

    def __init__(self, speeds: Speeds, profile: int, host_w: float, most_gpus: int, frequencies: np.ndarray):
        """`frequencies`: indices of the permitted frequencies in `speeds.frequencies`."""
        doublings = int(most_gpus).bit_length()
        levels = [1 << level for level in range(doublings)]
        self._points = [
            Step(gpus, int(index), 1 / rate, (watts + gpus * host_w) / rate, np.inf)
            for gpus in levels
            for index, rate, watts in zip(
                frequencies.tolist(),
                speeds.rate[profile, gpus, frequencies].tolist(),
                speeds.power_w[profile, gpus, frequencies].tolist(),
                strict=True,
            )
        ]
        self._at_same_gpus: dict[tuple[int, int], tuple[Step, ...]] = {}

    @cached_property
    def start(self) -> Step:
        """First configuration: one GPU at its frequency of least energy."""
        return min((p for p in self._points if p.gpus == 1), key=lambda p: p.joules)

    @cached_property
    def whole(self) -> tuple[Step, ...]:
        """Configurations over GPUs and frequencies, from `start` to the fastest."""
        return (self.start, *_climb(self.start, self._points))

    def faster_on(self, step: Step) -> tuple[Step, ...]:
        """Configurations that follow a step if only the frequency may change."""
        key = (step.gpus, step.frequency)
        if key not in self._at_same_gpus:
            self._at_same_gpus[key] = tuple(_climb(step, [p for p in self._points if p.gpus == step.gpus]))
        return self._at_same_gpus[key]


def _climb(here: Step, points: list[Step]) -> list[Step]:
    steps = []
    while True:
        faster = [point for point in points if point.seconds < here.seconds * (1 - 1e-9)]
        if not faster:
            return steps
        here = max((_step_to(here, point) for point in faster), key=lambda step: (step.gain, -step.seconds))
        steps.append(here)


def _step_to(here: Step, there: Step) -> Step:
    cost = max(np.log(there.joules / here.joules), _LEAST_COST)
    gain = float(np.log(here.seconds / there.seconds) / cost)
    return Step(there.gpus, there.frequency, there.seconds, there.joules, gain)
