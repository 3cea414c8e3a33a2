"""The paper's rule: throughput is proportional to power."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.throughput.base import THROUGHPUT_MODELS, Throughput


@THROUGHPUT_MODELS.add
class Linear(Throughput):
    """Throughput is proportional to power (paper Sec. 5.1), all of which is drawn."""

    kind = "linear"

    def fraction(self, power_fraction: np.ndarray) -> np.ndarray:
        """P itself."""
        return np.asarray(power_fraction, dtype=np.float64)
