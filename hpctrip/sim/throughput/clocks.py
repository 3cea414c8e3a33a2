"""GPUs at locked clocks, by the physical model of a GPU that the cluster simulation uses, too."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from hpctrip.base.gpus import GPUS
from hpctrip.base.units import Watts
from hpctrip.sim.throughput.base import THROUGHPUT_MODELS
from hpctrip.sim.throughput.points import OperatingPoints, Points


@THROUGHPUT_MODELS.add
class Clocks(OperatingPoints):
    """GPUs at locked clocks: power P0 + c x V(x)^2, time a + (1 - a) / x at the relative clock x (base/gpus.py)."""

    kind = "clocks"
    gpu: GPUS.field() = Field(default_factory=dict, validate_default=True)
    """The model: "a100", "a40", or either with numbers of your own."""
    idle_w: Watts | None = Field(None, ge=0)
    """Power of a GPU that is on and waits; absent: the model's."""

    def resolve(self) -> Self:
        """With the model's idle power."""
        return super().resolve().with_defaults(idle_w=self.gpu.idle_w)

    def points(self) -> Points:
        """The model's clocks."""
        x = self.gpu.frequencies
        return Points(self.gpu.full_power_w(x), 1 / self.gpu.slowdown(x))
