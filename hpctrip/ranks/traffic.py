"""What one round's exchange sends over a rank's link, and how long that takes: a prediction, not a measurement."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Traffic:
    """Bytes per rank and round."""

    up: int = 0
    """The int64 sum of the updates with its counters."""
    down: int = 0
    """The float32 model."""
    counters: int = 0
    """The int64 counters of the evaluation."""
    message: int = 0
    """What rank 0 tells all others."""

    @classmethod
    def of(cls, num_ranks: int, num_params: int, num_tail: int, num_counters: int, message: Any) -> Traffic:
        """Of a model of so many parameters, with so many counters in the tail of the sum and after the evaluation."""
        if num_ranks == 1:
            return cls()
        return cls(
            8 * (num_params + num_tail), 4 * num_params, 8 * num_counters, len(pickle.dumps((0, message)))
        )

    def seconds(self, bandwidth_bps: float) -> float:
        """Time of the two long collectives. A reduction and a broadcast of a long vector each send its bytes about
        twice over a rank's link, whatever the number of ranks (Rabenseifner's and van de Geijn's algorithms)."""
        return 2 * 8 * (self.up + self.down) / bandwidth_bps
