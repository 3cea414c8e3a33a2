"""Local training of a site in a round: the input's table [train], and the order in which samples are visited."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.config.component import Component
from hpctrip.sim.policies.base import MOST_VISITS


class LocalWork(Component):
    """Local training at a site. Absent keys take the workload's own values (the paper's Table 2), which `hpctrip check`
    prints."""

    lr: float | None = Field(None, gt=0)
    """Learning rate."""
    batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """Samples in one step."""
    micro_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Samples of a step that are computed at once: their gradients are added up to the step's, which saves memory and
    changes the last bits. Absent: the whole batch."""
    local_epochs: float | None = Field(None, gt=0, le=1000)
    """Passes over its shard that a site makes in a round, each a shuffle of its own. A fraction is that share of a pass
    in whole batches; the next round goes on where it ends."""
    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    """Steps that every site makes in a round, however large its shard, instead of epochs (DiLoCo's H)."""
    optimizer: Literal["sgd", "adamw"] | None = None
    """A site's optimiser."""
    keep_optimizer: bool = False
    """A site's optimiser goes on where it stopped when the site last trained, as if its rounds were one training; else
    it starts anew every round, as in FedAvg."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of SGD."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    eps: float = Field(1e-8, gt=0)
    """Added to the root of AdamW's second moment."""
    weight_decay: float | None = Field(None, ge=0)
    """An L2 penalty in SGD, decoupled from the gradient in AdamW."""
    prox_mu: float = Field(0.0, ge=0)
    """FedProx: mu/2 ||w - w_global||^2 is added to the site's loss (Li et al. 2020)."""

    @model_validator(mode="after")
    def _consistent(self) -> LocalWork:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                f"local_steps = {self.local_steps} and local_epochs = {self.local_epochs:g}: give one"
            )
        return self

    def micro_batches(self, size: int) -> list[slice]:
        """The parts of a batch of `size` samples that are computed at once."""
        step = min(self.micro_batch or size, size)
        return [slice(first, min(first + step, size)) for first in range(0, size, step)]

    def num_visits(self, num_samples: np.ndarray) -> np.ndarray:
        """Samples that each site visits in a round, [N] int64, from those that it holds, [N]; nothing may be absent.
        Raises InputError where a site would visit more than MOST_VISITS."""
        num_samples = np.asarray(num_samples, dtype=np.int64)
        if self.local_steps is not None:
            visits = np.where(num_samples > 0, self.local_steps * self.batch_size, 0)
        elif self.local_epochs >= 1:
            visits = np.ceil(num_samples * self.local_epochs).astype(np.int64)
        else:
            whole_batches = np.ceil(num_samples * self.local_epochs / self.batch_size) * self.batch_size
            visits = np.minimum(whole_batches, num_samples).astype(np.int64)
        if visits.max(initial=0) > MOST_VISITS:
            raise InputError(
                "train",
                f"site {visits.argmax()} would visit {visits.max():,} samples in a round, the most is {MOST_VISITS:,}",
                "lower train.local_epochs, or train.local_steps and train.batch_size, whose product it is",
            )
        return visits


def visiting_order(shard: np.ndarray, num_visits: int, seed: int, site: int, round: int) -> np.ndarray:
    """The samples that a site visits in a round (from 1), [num_visits], as indices into the training set.

    One whole pass or more: each is a fresh shuffle of the shard, all from the stream (seed, "order", round, site).
    Where a round visits less than the shard, passes go on over rounds: round r visits the r-th part of a row of
    shuffles, pass p from the stream (seed, "order", p, site), so that every pass visits every sample once,
    as long as all rounds visit as many.
    """
    size = len(shard)
    if num_visits >= size:
        rng = stream(seed, "order", round, site)
        passes = [rng.permutation(shard) for _ in range(math.ceil(num_visits / size))]
        return np.concatenate(passes)[:num_visits]
    first = (round - 1) * num_visits
    touched = range(first // size, (first + num_visits - 1) // size + 1)
    passes = [stream(seed, "order", number + 1, site).permutation(shard) for number in touched]
    return np.concatenate(passes)[first % size :][:num_visits]
