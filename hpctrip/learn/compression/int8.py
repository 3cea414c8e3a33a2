"""One byte an entry, in units of its bucket's largest."""

from __future__ import annotations

import math

import numpy as np
import torch
from pydantic import Field

from hpctrip.learn.compression.base import COMPRESSIONS, Compression, in_buckets

_MOST_STEPS = 127  # the largest of a bucket; -128 is left out, so that both signs have the same range


@COMPRESSIONS.add
class Int8(Compression):
    """Linear quantisation to -127..127 with one scale a bucket, its largest magnitude / 127, rounded to nearest.

    An entry's error is at most half the scale: 1/254 of the bucket's largest entry.
    """

    kind = "int8"
    bucket_size: int = Field(512, ge=1)
    """Consecutive entries that share a scale."""

    def payload_bytes(self, num_params: int) -> float:
        """P, and 4 bytes a bucket for the scale."""
        return num_params + 4.0 * math.ceil(num_params / self.bucket_size)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Round to whole multiples of the bucket's scale."""
        entries = in_buckets(delta, self.bucket_size)
        scale = entries.abs().amax(dim=1, keepdim=True) / _MOST_STEPS
        steps = (entries / torch.where(scale == 0, 1, scale)).round_().clamp_(-_MOST_STEPS, _MOST_STEPS)
        return (steps * scale).view(-1)[: len(delta)]
