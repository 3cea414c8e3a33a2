"""What the aggregator believes of every site: all that a policy may look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SiteView:
    """The profiler's view now, never the truth. Arrays [N]."""

    power_fraction: np.ndarray
    """P_i, in [0, 1]."""
    throughput_fraction: np.ndarray
    """What that power is worth, in [0, 1]: the throughput relative to that at full power."""
    comm_s: np.ndarray
    """L_i (Eq. 3) of each site alone, in seconds."""
    distance_m: np.ndarray
    """d_i, in metres."""
    work_s: np.ndarray
    """c_i, seconds of one round of local work at full power."""
    update_bytes: float
    """M, the simulated payload of one update as it travels up (compressed), in bytes."""
    link_s: float = 0.0
    """Seconds that one site's transfer takes of the aggregator's own link, which the cohort shares; 0: no bound."""
    clock: str = "straggler"
    """The reading of Eq. 7 by which the clock will charge the round (`timing.clock`)."""

    def __len__(self) -> int:
        return len(self.power_fraction)
