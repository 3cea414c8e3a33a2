"""The contract of a site's hardware: from power fraction to throughput fraction, and to the watts that are drawn."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, numbers
from hpctrip.base.units import Watts

THROUGHPUT_MODELS = Registry("throughput model", default="linear")
LARGEST_W = 1e30
"""More than any hardware draws; what is summed of it stays finite."""


class Throughput(Component):
    """The hardware of a site, the same at every site. A kind says what power is worth (`fraction`, a non-decreasing map
    of [0, 1] into [0, 1]); where it uses less than all of the power, it says what is drawn, too.

    Power is metered where it enters the site: all of it counts `pue` times.
    """

    num_gpus: int = Field(100, gt=0, le=10**9)
    """GPUs of a site, N."""
    gpu_power_w: Watts = Field(400.0, gt=0)
    """Power of one busy GPU with its share of the server (400 W: the rating of an A100 SXM)."""
    host_w: Watts = Field(0.0, ge=0)
    """Power of the server besides, for each GPU that is on, busy or idle (0: it is counted in gpu_power_w)."""
    idle_w: Watts = Field(55.0, ge=0)
    """Power of a GPU that is on and waits (55 W: about that of an A100 SXM)."""
    pue: float = Field(1.10, ge=1)
    """Power usage effectiveness: power of the site over power of its computers (1.10: Google's fleet)."""

    def full_power_w(self) -> float:
        """Power of a site whose GPUs all run at full speed."""
        return self.num_gpus * (self.gpu_power_w + self.host_w) * self.pue

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """Throughput relative to that of a fully powered site, float64 in the shape of `power_fraction`.

        May be 0: such a site makes no progress until it has more power.
        """
        raise NotImplementedError

    def busy_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """Watts that a site with so much power draws while it computes, in the shape of `power_fraction`: here all of
        its power."""
        return np.asarray(power_fraction, dtype=np.float64) * self.full_power_w()

    def gpus_on(self, power_fraction: np.ndarray) -> np.ndarray:
        """GPUs that are on, 0 to N, not always a whole number: here the share of them that the power is of all."""
        return np.asarray(power_fraction, dtype=np.float64) * self.num_gpus

    def waiting_w(self, power_fraction: np.ndarray) -> np.ndarray:
        """Watts that it draws while its GPUs are on and wait: never more than while they compute."""
        idle_w = self.gpus_on(power_fraction) * (self.idle_w + self.host_w) * self.pue
        return np.minimum(idle_w, self.busy_w(power_fraction))

    def checked_draw_w(self, power_fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(busy, waiting) watts [N] of sites with so much power [N], or InputError where they are none."""
        place, shape = config_key("throughput", self), power_fraction.shape
        busy_w = numbers(self.busy_w(power_fraction), shape, 0.0, LARGEST_W, place, "the watts of busy sites")
        waiting_w = self.waiting_w(power_fraction)
        return busy_w, numbers(waiting_w, shape, 0.0, LARGEST_W, place, "the watts of waiting sites")
