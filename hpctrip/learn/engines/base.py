"""The contract of an engine: train the sites of one block from the same global model, return their updates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch


@dataclass(frozen=True)
class LocalWork:
    """What every site does in a round: minibatch steps over its visiting order, by a local optimiser started anew."""

    lr: float
    batch_size: int
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: float = 0.0
    """Of SGD."""
    beta1: float = 0.9
    beta2: float = 0.999
    """Decay of AdamW's first and second moment."""
    eps: float = 1e-8
    """Added to the root of AdamW's second moment."""
    weight_decay: float = 0.0
    """An L2 penalty in SGD, decoupled from the gradient in AdamW."""
    prox_mu: float = 0.0
    """FedProx: mu/2 ||w - w_global||^2 is added to the loss."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Of matrix products and convolutions; weights, updates and sums stay float32. TF32 is a GPU's."""


@dataclass(frozen=True)
class SiteWork:
    """One site's work in one round."""

    site: int
    order: np.ndarray
    """[num_visits] int64: indices into the training set in visiting order, epochs one after another.
    Cut into consecutive batches of `batch_size`; the last may be smaller."""


@dataclass(frozen=True)
class SiteUpdate:
    """What a site sends back."""

    site: int
    delta: torch.Tensor
    """[num_params] float32 on the engine's device: local minus global parameters. Valid until the next iteration."""
    magnitude: float
    """Largest magnitude in `delta`; NaN where there is one."""
    mean_loss: float
    """Mean over the visited samples of the training loss at the time of the visit."""
    wall_s: float
    """Wall time of training this site (a block's time divided by samples, where sites train together)."""


class Engine(Protocol):
    """Built as `Engine(task, work, device)`; `train` yields one update per site, in the order of `sites`.

    `params` is the global model as one flat float32 vector [num_params] (see learn.params) and is never modified.
    Results must not depend on which other sites are in the block (to float tolerance for `stacked`, to the bit for
    `sequential`), nor on earlier calls.
    """

    name: str
    description: str
    """How sites train here, in words for the user."""

    def train(self, params: torch.Tensor, sites: list[SiteWork]) -> Iterator[SiteUpdate]:
        """Train every site of the block from `params`."""
        ...

    def memory_bytes(self, sites_per_block: int) -> int:
        """Of the vectors that training a block of so many sites needs; activations and the data come besides."""
        ...
