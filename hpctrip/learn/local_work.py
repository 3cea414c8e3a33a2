"""Local training of a site in a round: the input's table [train], and the order in which samples are visited."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.config.component import Component, config_key
from hpctrip.config.identity import Added
from hpctrip.sim.arrivals import Rounds
from hpctrip.sim.policies.base import MOST_VISITS
from hpctrip.sim.sites import numbered


class LocalWork(Component):
    """Local training at a site. Absent keys have the workload's values (the paper's Table 2), which `hpctrip check`
    prints."""

    lr: float | None = Field(None, gt=0)
    """Learning rate."""
    batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """Samples in one step."""
    micro_batch: int | None = Field(None, ge=1, le=1_000_000)
    """Samples per forward pass: a step adds up their gradients, which saves memory and changes the last bits. Absent:
    the whole batch."""
    local_epochs: float | None = Field(None, gt=0, le=1000)
    """Passes over a site's shard per round, each reshuffled, with a possibly smaller last batch (as in FedAvg). A
    fraction is a share of a pass in whole batches; the site's next round continues there."""
    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    """Steps per round at every site, instead of epochs (DiLoCo's H). Every batch is full, or the whole shard if that
    is smaller, and may extend over the end of a pass; the site's next round continues after the last step."""
    optimizer: Literal["sgd", "adamw"] | None = None
    """A site's optimiser."""
    keep_optimizer: bool = False
    """Whether a site's optimiser keeps its state between the site's rounds; false: it is reset every round, as in
    FedAvg."""
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
    warmup_steps: Added[int] = Field(0, ge=0, le=10**9)
    """Steps of the run over which the learning rate rises linearly to `lr`. Steps are those of all rounds,
    `local_steps` a round, so a site that skips rounds comes back at the rate of the others."""
    cosine_steps: Added[int | None] = Field(None, ge=1, le=10**9)
    """Steps of the run, the warm-up included, after which a half cosine has lowered the learning rate to
    `final_lr_fraction`; then it stays there. Usually `stop.max_rounds` times `local_steps`. Absent: no decay."""
    final_lr_fraction: Added[float] = Field(0.05, ge=0, le=1)
    """Learning rate at the end of the cosine, as a share of `lr` (0.05: DiLoCo, arXiv 2503.09799)."""
    clip_norm: Added[float | None] = Field(None, gt=0)
    """Largest 2-norm of the gradient of a step, all weights together; a longer one is shortened to it."""
    decay_vectors: Added[bool] = True
    """Whether weight decay also acts on parameters of one dimension or none: biases, gains of normalisations."""

    @model_validator(mode="after")
    def _consistent(self) -> LocalWork:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                f"local_steps = {self.local_steps} and local_epochs = {self.local_epochs:g}: give one"
            )
        if self.is_scheduled and self.local_steps is None:
            raise ValueError(
                "warmup_steps and cosine_steps count steps, equal at all sites: give local_steps (centralized has none)"
            )
        if self.cosine_steps is not None and self.cosine_steps <= self.warmup_steps:
            raise ValueError(
                f"cosine_steps = {self.cosine_steps} includes the warm-up: give more than warmup_steps = "
                f"{self.warmup_steps}"
            )
        return self

    @property
    def is_scheduled(self) -> bool:
        """Whether the learning rate depends on the step."""
        return self.warmup_steps > 0 or self.cosine_steps is not None

    @property
    def has_recipe(self) -> bool:
        """Whether a step is more than that of its optimiser: scheduled, clipped, or without decay of vectors."""
        return self.is_scheduled or self.clip_norm is not None or not self.decay_vectors

    def check_rounds(self, rounds: Rounds) -> None:
        """Raises InputError where steps of a schedule cannot be counted over such rounds."""
        if self.is_scheduled and rounds.leaves_flights:
            problem = "has no common count of steps, by which train.warmup_steps and train.cosine_steps go"
            hint = "leave these out, or use synchronous rounds"
            raise InputError(config_key("rounds", rounds), problem, hint)

    def lr_at(self, step: int) -> float:
        """Learning rate of a step of the run, counted from 0 over all rounds: that of torch's LinearLR, then
        CosineAnnealingLR, which could only be stepped through from the start."""
        if step < self.warmup_steps:
            return self.lr * (step + 1) / self.warmup_steps
        if self.cosine_steps is None:
            return self.lr
        done = min((step - self.warmup_steps) / (self.cosine_steps - self.warmup_steps), 1.0)
        final = self.final_lr_fraction
        return self.lr * (final + (1 - final) * (1 + math.cos(math.pi * done)) / 2)

    def micro_batches(self, size: int) -> list[slice]:
        """The parts of a batch of `size` samples that are computed at once."""
        step = min(self.micro_batch or size, size)
        return [slice(first, min(first + step, size)) for first in range(0, size, step)]

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: no batch reaches over the end of an epoch, and parts of passes go on where the site's last round ended. A
        single whole pass is what it was."""
        return 1 if self.local_steps is None and self.local_epochs in (None, 1) else 2

    @property
    def resumes_passes(self) -> bool:
        """Whether a site's round goes on within the pass in which its last round ended."""
        return self.local_steps is not None or self.local_epochs % 1 > 0

    def num_visits(self, num_samples: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
        """Samples that each site visits in a round, [N] int64, from those that it holds, [N]; nothing may be absent.
        Raises InputError where a site would visit more than MOST_VISITS, with its name among `names` [N], if any."""
        num_samples = np.asarray(num_samples, dtype=np.int64)
        whole_passes, resumed = self._parts(num_samples)
        visits = whole_passes * num_samples + resumed
        if visits.max(initial=0) > MOST_VISITS:
            site = numbered(int(visits.argmax()), names)
            raise InputError(
                "train",
                f"{site} would visit {visits.max():,} samples in a round, the most is {MOST_VISITS:,}",
                "lower train.local_epochs, or train.local_steps and train.batch_size, whose product it is",
            )
        return visits

    def smallest_batch(self, num_samples: np.ndarray) -> int:
        """Size of the smallest batch at sites that hold `num_samples` [N]. Where a round ends within a pass, every
        remainder of a batch comes in time."""
        held = num_samples[num_samples > 0]
        if self.local_steps is not None:
            last = held
        elif self.resumes_passes:
            last = np.gcd(held, self.batch_size)
        else:
            last = (held - 1) % self.batch_size + 1
        return int(last.min(initial=self.batch_size))

    def _parts(self, num_samples: np.ndarray) -> tuple[int, np.ndarray]:
        """Passes of a round that are made in it from beginning to end, and the samples visited besides, [N] int64, in
        passes that go on from round to round."""
        if self.local_steps is not None:
            return 0, self.local_steps * np.minimum(self.batch_size, num_samples)
        whole_passes = int(self.local_epochs)
        # 0.1 of a pass of 10 batches is one of them, though 1.1 - 1 is a little more than 0.1
        num_batches = num_samples * (self.local_epochs - whole_passes) / self.batch_size * (1 - 1e-12)
        resumed = np.minimum(np.ceil(num_batches) * self.batch_size, num_samples)
        return whole_passes, resumed.astype(np.int64)

    def visits(
        self, shard: np.ndarray, seed: int, site: int, round: int, times: int = 1, visited: int = 0
    ) -> list[np.ndarray]:
        """The samples that a site visits in a round (from 1) that trains `times` what [train] says, as indices into the
        training set. Each array is cut into batches by itself, so that no batch reaches from one to the next.

        Whole passes are shuffles from the stream (seed, "order", round, site). A part of a pass belongs to passes that
        go on from round to round, pass p from the stream (seed, "pass", p, site), each of which visits every sample
        once; the site goes on after the `visited` samples of the earlier rounds in which it trained.
        """
        size = len(shard)
        if not size:
            return []
        whole_passes, resumed = self._parts(np.array(size))
        drawn = stream(seed, "order", round, site)
        passes = [drawn.permutation(shard) for _ in range(times * whole_passes)]
        first = visited * int(resumed) // (whole_passes * size + int(resumed))
        end = first + times * int(resumed)
        parts = [
            stream(seed, "pass", number, site).permutation(shard)[max(0, first - begin) : end - begin]
            for number, begin in enumerate(range(first - first % size, end, size), first // size + 1)
        ]
        if self.local_steps is not None and self.batch_size < size:
            parts = [np.concatenate(parts)]
        return passes + parts
