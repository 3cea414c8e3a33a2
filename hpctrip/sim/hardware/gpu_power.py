"""Power and speed of a GPU at a clock frequency: a model fitted to measurements at locked clocks.

The measurements are those of Perseus (Chung et al., SOSP 2024; ml-energy/zeus, sosp24_data, Apache-2.0): pipeline
stages of GPT-3 and BLOOM on A100 SXM and A40. They reject the cubic law. The curves here are means of the fits to both
models: they miss the measurements (sums over the stages of a model, all clocks) by 2.2 and 2.4 % rms in power and 2.8
and 3.8 % in time on the A100, and by 1.5 % in power and 1.7 and 1.9 % in time on the A40.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.units import Watts
from hpctrip.config.component import Component, Registry

OWN_GPU = 'throughput.kind = "curve" with its points in path (the gpu of such sites is empty)'
GPUS = Registry("gpu", default="a100", own=OWN_GPU)


class Gpu(Component):
    """Power P(x) = static + dynamic x V(x)^2 at the frequency x = f / f_max, and time (a + (1 - a) / x).

    The voltage V is 1 up to `knee` and rises in a straight line to `top_voltage` at x = 1. The defaults are an A100's.
    """

    static_w: Watts = Field(42.5, ge=0)
    """P0: power of a working GPU that does not follow its frequency."""
    dynamic_w: Watts = Field(310.0, gt=0)
    """c: the part that follows the frequency, at V = 1 and x = 1."""
    knee: float = Field(0.78, gt=0, lt=1)
    """Frequency above which the voltage rises."""
    top_voltage: float = Field(1.2, ge=1, le=3)
    """V at the highest frequency, relative to that below the knee."""
    memory_fraction: float = Field(0.146, ge=0, lt=1)
    """a: share of the computing time that does not follow the frequency."""
    idle_w: Watts = Field(55.0, ge=0)
    """Power of a GPU without a job in a node that is on."""
    cap_w: Watts | None = Field(None, gt=0)
    """Power limit; frequencies that would exceed it run at the highest that does not. Absent: none."""
    exchange_activity: float = Field(0.35, ge=0, le=1)
    """Share of the dynamic power that is left while gradients are exchanged. Assumed, not measured."""
    lowest_frequency: float = Field(0.6, gt=0, le=1)
    """The lowest clock, as a fraction of the highest."""
    num_frequencies: int = Field(9, ge=1, le=200)
    """Clocks that may be set, evenly spaced from the lowest to the highest."""

    @model_validator(mode="after")
    def _runs(self) -> Self:
        least_w = self.full_power_w(self.lowest_frequency)
        if self.cap_w is not None and least_w > self.cap_w:
            raise ValueError(
                f"cap_w = {self.cap_w:g} is below what the lowest frequency draws, {least_w:.0f} W"
            )
        busy_w = self.static_w + self.exchange_activity * self.dynamic_w * self.lowest_frequency
        if self.idle_w > busy_w:
            raise ValueError(f"idle_w = {self.idle_w:g} is above what a working GPU may draw, {busy_w:.0f} W")
        return self

    def full_power_w(self, frequency: np.ndarray | float) -> np.ndarray:
        """P of a GPU that computes all the time; any shape."""
        x = np.asarray(frequency, float)
        voltage = 1 + (self.top_voltage - 1) * np.maximum(x - self.knee, 0) / (1 - self.knee)
        return self.static_w + self.dynamic_w * x * voltage**2

    def power_w(self, frequency: np.ndarray | float, computing: np.ndarray | float) -> np.ndarray:
        """P of a GPU of a job that computes for this share of its time and exchanges gradients for the rest."""
        active = self.exchange_activity + (1 - self.exchange_activity) * np.asarray(computing, float)
        return self.static_w + (self.full_power_w(frequency) - self.static_w) * active

    def slowdown(self, frequency: np.ndarray | float) -> np.ndarray:
        """Computing time relative to that at the highest frequency, 1 or more."""
        return self.memory_fraction + (1 - self.memory_fraction) / np.asarray(frequency, float)

    @cached_property
    def frequencies(self) -> np.ndarray:
        """[F] the clocks that the GPU can run at, rising; none draws more than the cap."""
        x = np.linspace(self.lowest_frequency, 1.0, self.num_frequencies)
        if self.cap_w is None or self.full_power_w(1.0) <= self.cap_w:
            return x
        fine = np.linspace(self.lowest_frequency, 1.0, 10_001)
        reached = fine[self.full_power_w(fine) <= self.cap_w][-1]
        return np.append(x[x < reached], reached)


@GPUS.add
class A100(Gpu):
    """NVIDIA A100 SXM. The least energy is near x = 0.78; measured: 0.77 with GPT-3, 0.76 with BLOOM."""

    kind = "a100"


@GPUS.add
class A40(Gpu):
    """NVIDIA A40, which reaches its cap of 300 W near x = 0.85. The least energy is near x = 0.58; measured: 0.54 with
    GPT-3, 0.59 with BLOOM."""

    kind = "a40"
    static_w: Watts = Field(97.0, ge=0)
    dynamic_w: Watts = Field(165.0, gt=0)
    knee: float = Field(0.65, gt=0, lt=1)
    top_voltage: float = Field(1.3, ge=1, le=3)
    memory_fraction: float = Field(0.64, ge=0, lt=1)
    cap_w: Watts | None = Field(300.0, gt=0)
    lowest_frequency: float = Field(0.5, gt=0, le=1)
