"""The update of a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hpctrip.learn.aggregate import LARGEST_UPDATE

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "tf32", "bfloat16"]
"""Precision of matrix products and convolutions; weights, updates and sums stay float32. Only GPUs have TF32."""


@dataclass(frozen=True)
class SiteUpdate:
    """Result of a site's local training."""

    delta: torch.Tensor
    """The local minus the global model, float32 on the engine's device, of the length of the flat vector (see
    learn.params). Valid until the next iteration."""
    magnitude: float
    """Largest magnitude in `delta` (`learn.aggregate.magnitude_of`); NaN where there is one."""
    train_loss: float
    """Mean over the visited samples of the training loss at the time of the visit."""
    loss_before: float
    """Mean loss of the first batch, before any step: that of the global model."""
    loss_after: float
    """Mean loss of the last batch, before the last step."""
    wall_s: float
    """Wall time of training this site (a block's time divided by samples, where sites train together)."""

    @property
    def usable(self) -> bool:
        """Whether the update and its losses can be summed; False where training diverged."""
        losses = self.train_loss, self.loss_before, self.loss_after
        return all(abs(loss) < LARGEST_UPDATE for loss in losses) and self.magnitude < LARGEST_UPDATE
