"""QSGD: a few bits an entry, rounded at random so that the error is zero on average."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field

from hpctrip.learn.compression.base import COMPRESSIONS, Compression, in_buckets


@COMPRESSIONS.add
class QSGD(Compression):
    """Stochastic quantisation to few levels of a bucket's 2-norm, right on average (Alistarh et al. 2017, Sec. 3.1).

    v_i becomes ||v|| sgn(v_i) l / s, where ||v|| is the 2-norm of its bucket and l one of the two integers around
    s |v_i| / ||v||, drawn so that the mean is v_i. The squared error of a bucket of n is at most
    min(n / s^2, sqrt(n) / s) ||v||^2 on average (Lemma 3.1). The paper's Elias code would be shorter still; here
    entries have a fixed length.
    """

    kind = "qsgd"
    levels: int = Field(7, ge=1, le=127)
    """s: an entry takes one of 2 s + 1 values. 1: 2 bits, 7: 4 bits, 127: 8 bits."""
    bucket_size: int = Field(128, ge=1)
    """n: consecutive entries that share a norm. Fewer mean less noise, and 32 / n more bits an entry."""

    def payload_bytes(self, num_params: int) -> float:
        """ceil(log2(2 s + 1)) bits an entry, in whole bytes, and 4 bytes a bucket for the norm."""
        bits = (2 * self.levels).bit_length()
        return math.ceil(bits * num_params / 8) + 4.0 * math.ceil(num_params / self.bucket_size)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Draw a level for every entry."""
        entries = in_buckets(delta, self.bucket_size)
        # in float64, where the square of no float32 over- or underflows
        norm = torch.linalg.vector_norm(entries, dim=1, keepdim=True, dtype=torch.float64).float()
        exact = entries.abs() / torch.where(norm == 0, 1, norm) * self.levels
        below = exact.floor()
        # drawn by NumPy, so that the same numbers come on every device
        draw = torch.from_numpy(rng.random(entries.shape, dtype=np.float32)).to(delta.device)
        level = (below + (draw < exact - below)).clamp_(max=self.levels)
        return (entries.sign() * level * (norm / self.levels)).view(-1)[: len(delta)]
