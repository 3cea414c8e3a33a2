"""Two bytes an entry."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch

from hpctrip.learn.compression.base import COMPRESSIONS, Compression


@COMPRESSIONS.add
class Half(Compression):
    """A 16-bit floating-point format, rounded to nearest."""

    kind = "half"
    format: Literal["float16", "bfloat16"] = "float16"
    """float16: relative error up to 2^-11 from 6e-5 to 65,504, absolute error up to 2^-25 below. bfloat16: relative
    error up to 2^-8 over float32's whole range."""

    def payload_bytes(self, num_params: int) -> float:
        """2 P."""
        return 2.0 * num_params

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """To the format and back. Beyond float16's range: infinite, so the update counts as diverged."""
        return delta.to(getattr(torch, self.format)).float()
