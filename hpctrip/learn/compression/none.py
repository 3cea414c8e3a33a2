"""No compression: float32 as it is."""

from __future__ import annotations

import numpy as np
import torch

from hpctrip.learn.compression.base import COMPRESSIONS, Compression


@COMPRESSIONS.add
class Uncompressed(Compression):
    """float32, 4 bytes an entry."""

    kind = "none"
    lossless = True

    def payload_bytes(self, num_params: int) -> float:
        """4 P."""
        return 4.0 * num_params

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """The update itself."""
        return delta
