"""The configurations worth having of a kind of job, from the cheapest to the fastest: PowerFlow's moves.

All pairs of a number of GPUs (1, 2, 4, ...) and a frequency are points (E, T): energy and time for a unit of work. The
walk begins at one GPU at its frequency of least energy. A move goes on to the point with the largest relative gain,
ln(T / T') / ln(E' / E), among all that are faster; so the walk follows the lower hull of the points, gains fall from
move to move, and points that are slower for more energy are never met. That gains are relative makes them the same for
every job of a kind, whatever is left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpctrip.cluster.profiles import Speeds

_LEAST_COST = 1e-3
"""A move that costs less energy than this share counts as if it cost so much."""


@dataclass(frozen=True)
class Step:
    """A configuration, and the move that leads to it."""

    gpus: int
    frequency: int
    seconds: float
    """For a unit of work."""
    joules: float
    """For a unit of work, hosts' share included."""
    gain: float
    """Relative fall of time per relative rise of energy; inf at the beginning of a walk."""

    @property
    def watts(self) -> float:
        """Mean power while it works."""
        return self.joules / self.seconds


class Ladder:
    """The walks of one kind of job. `host_w` is the power of a host for each of its GPUs."""

    def __init__(self, speeds: Speeds, profile: int, host_w: float, most_gpus: int, frequencies: np.ndarray):
        """`frequencies`: indices of those that may be used."""
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
        self._from: dict[tuple[int, int], tuple[Step, ...]] = {}

    @cached_property
    def start(self) -> Step:
        """One GPU at the frequency of least energy."""
        return min((p for p in self._points if p.gpus == 1), key=lambda p: p.joules)

    @cached_property
    def whole(self) -> tuple[Step, ...]:
        """The walk over GPUs and frequencies, its start included."""
        return (self.start, *_walk(self.start, self._points))

    def faster_on(self, step: Step) -> tuple[Step, ...]:
        """The walk from a step over the frequencies alone, on the same GPUs."""
        key = (step.gpus, step.frequency)
        if key not in self._from:
            self._from[key] = tuple(_walk(step, [p for p in self._points if p.gpus == step.gpus]))
        return self._from[key]


def _walk(here: Step, points: list[Step]) -> list[Step]:
    steps = []
    while True:
        faster = [point for point in points if point.seconds < here.seconds * (1 - 1e-9)]
        if not faster:
            return steps
        here = max((_move(here, point) for point in faster), key=lambda step: (step.gain, -step.seconds))
        steps.append(here)


def _move(here: Step, there: Step) -> Step:
    cost = max(np.log(there.joules / here.joules), _LEAST_COST)
    gain = float(np.log(here.seconds / there.seconds) / cost)
    return Step(there.gpus, there.frequency, there.seconds, there.joules, gain)
