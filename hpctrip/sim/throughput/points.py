"""Hardware whose GPUs run at one of several operating points: clocks or caps at which they were measured."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Watts
from hpctrip.sim.throughput.base import Throughput

MOST_LEVELS = 10_000_000
"""Numbers of GPUs times operating points."""
_SLACK = 1e-9
"""Of a power that is exactly enough for a level: rounding must not take the level away."""


class Points(NamedTuple):
    """Operating points of one GPU, [C] each."""

    watts: np.ndarray
    rate: np.ndarray
    """Work per second, in any unit."""


class Levels(NamedTuple):
    """What a site can run, by rising power, [L] each: every level has more throughput than the one before."""

    site_w: np.ndarray
    """Drawn at the site's meter while it computes."""
    throughput: np.ndarray
    """Relative to all GPUs at their fastest point."""
    num_gpus: np.ndarray


class OperatingPoints(Throughput):
    """Base of the kinds that know several operating points of their GPU.

    Of all pairs (number of GPUs, point), the same point for all GPUs, a site runs the one with the most throughput
    that its power P * site_power_w is enough for; with choice = "least-energy" as many GPUs as it is enough for at the
    point that needs the least energy for a sample, the server's share included.
    """

    gpu_power_w: Watts | None = Field(None, gt=0)
    """Power limit of a GPU: faster points that draw more are left out. Absent: none."""
    site_power_w: Watts | None = Field(None, gt=0)
    """Power of the site at P = 1; absent: exactly what all its GPUs need at the fastest point."""
    choice: Literal["most-throughput", "least-energy"] = "most-throughput"
    """What is made of the power."""

    def points(self) -> Points:
        """Of one GPU, at least one, all positive. Raises InputError where a file that they are in is unusable."""
        raise NotImplementedError

    @cached_property
    def _allowed(self) -> Points:
        """Within the GPU's power limit, by rising power."""
        watts, rate = self.points()
        kept = np.flatnonzero(watts <= (self.gpu_power_w or np.inf))
        if not len(kept):
            raise InputError(
                f"throughput.gpu_power_w = {self.gpu_power_w:g}",
                f"the GPU draws at least {watts.min():.4g} W",
                "raise it, or leave it out",
            )
        order = kept[np.lexsort((-rate[kept], watts[kept]))]
        return Points(watts[order], rate[order])

    def full_power_w(self) -> float:
        """Power of a site whose GPUs all run at the fastest point."""
        watts, rate = self._allowed
        return self.num_gpus * (float(watts[rate.argmax()]) + self.host_w) * self.pue

    @cached_property
    def levels(self) -> Levels:
        """From nothing at all to the most that all GPUs can do."""
        watts, rate = self._allowed
        if self.num_gpus * len(watts) > MOST_LEVELS:
            raise InputError(
                f"throughput.num_gpus = {self.num_gpus:,}",
                f"times {len(watts):,} operating points is more than {MOST_LEVELS:,}",
                "describe a site by fewer, larger GPUs, or thin out the curve",
            )
        fastest = rate.max()
        drawn_w = watts + self.host_w
        if self.choice == "least-energy":
            best = int(np.argmin(drawn_w / rate))
            drawn_w, rate = drawn_w[best : best + 1], rate[best : best + 1]
        number = np.arange(1, self.num_gpus + 1)
        site_w = (number[:, None] * drawn_w * self.pue).ravel()
        throughput = (number[:, None] * (rate / fastest) / self.num_gpus).ravel()
        number = np.repeat(number, len(rate))
        order = np.lexsort((-throughput, site_w))
        site_w, throughput, number = site_w[order], throughput[order], number[order]
        better = throughput > np.maximum.accumulate(np.concatenate([[0.0], throughput[:-1]]))
        first = np.zeros(1)
        return Levels(*(np.concatenate([first, values[better]]) for values in (site_w, throughput, number)))

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """That of the level."""
        return self.levels.throughput[self._level(power_fraction)]

    def busy_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """That of the level; the rest of the power is not used."""
        return self.levels.site_w[self._level(power_fraction)]

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """Those of the level."""
        return self.levels.num_gpus[self._level(power_fraction)]

    def _level(self, power_fraction: np.ndarray) -> np.ndarray:
        site_w = np.asarray(power_fraction, dtype=np.float64) * (self.site_power_w or self.full_power_w())
        return np.searchsorted(self.levels.site_w, site_w * (1 + _SLACK), side="right") - 1
