"""Only the largest entries, and memory of the others."""

from __future__ import annotations

import numpy as np
import torch
from pydantic import Field

from hpctrip.learn.compression.base import COMPRESSIONS, Compression


@COMPRESSIONS.add
class TopK(Compression):
    """The k entries of largest magnitude as they are, each with its index; the others are 0.

    That is biased: where sites differ it need not converge, unless every site adds what it did not send to its next
    update (error feedback: Stich et al. 2018; Karimireddy et al. 2019), which costs 4 P bytes a site of memory.
    """

    kind = "top-k"
    fraction: float = Field(0.01, gt=0, le=0.5)
    """k / P, of which at least one entry is sent. Beyond one half the indices cost more than the zeros saved."""
    error_feedback: bool = True
    """Keep what was not sent for the site's next update."""

    @property
    def keeps_residual(self) -> bool:
        """With error feedback."""
        return self.error_feedback

    def num_kept(self, num_params: int) -> int:
        """k."""
        return max(1, round(self.fraction * num_params))

    def payload_bytes(self, num_params: int) -> float:
        """4 bytes for a value and 4 for its index."""
        return 8.0 * self.num_kept(num_params)

    def roundtrip(self, delta: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """Zero but for the k largest."""
        kept = delta.abs().topk(self.num_kept(len(delta)), sorted=False).indices
        return torch.zeros_like(delta).index_copy_(0, kept, delta[kept])
