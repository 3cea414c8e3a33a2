"""Eq. 6: as many whole GPUs as the power is enough for."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import model_validator

from hpctrip.base.units import Watts
from hpctrip.sim.throughput.base import THROUGHPUT_MODELS, Throughput


@THROUGHPUT_MODELS.add
class Gpus(Throughput):
    """Whole GPUs run at full power or not at all: n = min(N, floor(power_w / gpu_power_w)) (Eq. 6).

    power_w = P * site_power_w / pue is what reaches the GPUs. Below the power of one GPU the throughput is 0.
    """

    kind = "gpus"
    site_power_w: Watts | None = None
    """Power of the site at P = 1. By default exactly what all its GPUs need: num_gpus * gpu_power_w * pue."""

    @model_validator(mode="after")
    def _powers_one_gpu(self) -> Self:
        if self.site_power_w is not None and self.site_power_w / self.pue < self.gpu_power_w + self.host_w:
            raise ValueError(
                f"site_power_w = {self.site_power_w:g} at pue = {self.pue:g} does not power one GPU of "
                f"gpu_power_w = {self.gpu_power_w:g}, even at full power"
            )
        return self

    def resolve(self) -> Self:
        """With the site's power."""
        return self.with_defaults(site_power_w=self.full_power_w())

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """n / N."""
        return self.gpus_on(power_fraction) / self.num_gpus

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """n."""
        full_w = self.resolve().site_power_w
        one_w = self.gpu_power_w + self.host_w
        powered = np.asarray(power_fraction, dtype=np.float64) * (full_w / self.pue / one_w)
        # Rounding leaves exact multiples as 39.99999999999999; 1e-9 of a GPU is far above that, far below a watt.
        return np.minimum(self.num_gpus, np.floor(powered + 1e-9 * self.num_gpus))

    def busy_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """That of n GPUs; the rest of the power is not used."""
        return self.gpus_on(power_fraction) * (self.gpu_power_w + self.host_w) * self.pue
