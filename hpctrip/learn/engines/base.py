"""The update of a site, and its state from round to round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from hpctrip.learn.aggregate import LARGEST_UPDATE, magnitude_of

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
    def losses(self) -> tuple[float, float, float]:
        """The three losses."""
        return self.train_loss, self.loss_before, self.loss_after

    @property
    def usable(self) -> bool:
        """Whether the update and its losses can be summed; False where training diverged."""
        return all(abs(loss) < LARGEST_UPDATE for loss in self.losses) and self.magnitude < LARGEST_UPDATE


class SiteState:
    """State of the sites from round to round, at the host that trains them: one float32 row a site.

    A row holds what compression lost of the site's updates, the state of its optimiser, and its own model where it goes
    on with one ([overlap]); each length may be 0. It never travels with the updates: blocks of such sites have fixed
    hosts (ranks/placement.py), and a checkpoint holds every row.

    Another row, at any host, is an update that is under way to a later round: its delta, where the values of buffers
    stand for their changes, because the model from which they differ will be gone, and its losses, bit for bit.
    """

    NUM_LOSSES = 6
    """float32 entries that hold the three losses, float64."""

    def __init__(
        self, num_residual: int, num_optimizer: int, device: torch.device | str = "cpu", num_replica: int = 0
    ):
        self._lengths = num_residual, num_optimizer, num_replica
        self._device = device
        self.rows: dict[int, torch.Tensor] = {}
        """[length] by site."""
        self.under_way: dict[int, torch.Tensor] = {}
        """[P + B + NUM_LOSSES] by site."""

    @property
    def length(self) -> int:
        """Length of a row."""
        return sum(self._lengths)

    def of(self, site: int, params: torch.Tensor | None = None) -> list[torch.Tensor | None]:
        """[residual, optimiser's state, own model] of a site, views to read and write; before its first round zero and
        the global model `params` [P]. None for a part of length 0."""
        if not self.length:
            return [None] * len(self._lengths)
        if site not in self.rows:
            import torch

            self.rows[site] = torch.zeros(self.length, device=self._device)
            if self._lengths[-1]:
                self.rows[site][-self._lengths[-1] :] = params
        return [part if len(part) else None for part in self.rows[site].split(self._lengths)]

    def keep(self, site: int, update: SiteUpdate, start: torch.Tensor, num_params: int) -> None:
        """Keep an update, which differs from `start` [P + B], for a later round."""
        import torch

        losses = torch.from_numpy(np.array(update.losses).view(np.float32))
        self.under_way[site] = row = torch.cat([update.delta, losses.to(update.delta)])
        row[num_params : len(start)] += start[num_params:]

    def take(self, site: int, start: torch.Tensor, num_params: int) -> SiteUpdate | None:
        """The update that this rank has kept for a site, as it differs from `start` [P + B]; None where it has none."""
        if (row := self.under_way.pop(site, None)) is None:
            return None
        delta, losses = row[: len(start)], row[len(start) :].cpu().numpy().view(np.float64)
        delta[num_params:] -= start[num_params:]
        return SiteUpdate(delta, float(magnitude_of(delta, num_params)), *losses.tolist(), wall_s=0.0)
