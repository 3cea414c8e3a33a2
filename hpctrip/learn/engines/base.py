"""The contract of an engine: train the sites of one block from the same global model, return their updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from hpctrip.learn.aggregate import LARGEST_UPDATE


@dataclass(frozen=True)
class SiteWork:
    """One site's work in one round."""

    site: int
    order: np.ndarray
    """[num_visits] int64: indices into the training set in visiting order, epochs one after another.
    Cut into consecutive batches of `batch_size`; the last may be smaller."""
    optimizer: torch.Tensor | None = None
    """Where the site's optimiser stopped, float32 [rules.kept_length]: it goes on from there, and what it has come to
    is laid there. None: it starts anew."""


@dataclass(frozen=True)
class SiteUpdate:
    """What a site sends back."""

    site: int
    delta: torch.Tensor
    """[num_params] float32 on the engine's device: local minus global parameters. Valid until the next iteration."""
    magnitude: float
    """Largest magnitude in `delta`; NaN where there is one."""
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
        """Did training stay within numbers that can be summed? False where it diverged."""
        losses = self.train_loss, self.loss_before, self.loss_after
        return all(abs(loss) < LARGEST_UPDATE for loss in losses) and self.magnitude < LARGEST_UPDATE


class Engine(Protocol):
    """Built as `Engine(task, work, device, precision)` of work in which nothing is absent (`Workload.local_work`);
    `train` yields one update per site, in the order of `sites`.

    `params` is the global model as one flat float32 vector [num_params] (see learn.params) and is never modified.
    Results must not depend on which other sites are in the block (to float tolerance for `stacked`, to the bit for
    `sequential`), nor on earlier calls.
    """

    name: str
    sites_per_block: int
    """Sites in its largest block, unless the input says otherwise."""
    description: str
    """How sites train here, in words for the user."""

    def train(self, params: torch.Tensor, sites: list[SiteWork]) -> Iterator[SiteUpdate]:
        """Train every site of the block from `params`."""
        ...

    def memory_bytes(self, sites_per_block: int) -> int:
        """Of the vectors that training a block of so many sites needs; activations and the data come besides."""
        ...
