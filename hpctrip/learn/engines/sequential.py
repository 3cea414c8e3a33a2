"""The sequential engine: one site after another. The default on a CPU, where a site's model fits the cache."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from hpctrip.learn.aggregate import magnitude_of
from hpctrip.learn.engines.base import SiteUpdate
from hpctrip.learn.engines.steps import AutogradStep, Engine, Optimizers, Replicas, Step, Visits
from hpctrip.learn.overlap import Replica
from hpctrip.learn.params import flatten, num_params


class Sequential(Engine):
    """Trains the sites of a block one by one. On a CPU a site's result is the same, to the bit, in every block.

    A model may bring its own hand-written step: `model.fused_step(loss, work)` returns a Step, or None where it does
    not cover that loss or that work. Every other model, bfloat16, schedules and clipping are left to autograd.
    """

    name = "sequential"
    sites_per_block = 1

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        by_hand = self.precision != "bfloat16" and not self.work.has_recipe
        fused = getattr(self.model, "fused_step", None) if by_hand else None
        self.step: Step = (fused and fused(self.task.loss, self.work)) or AutogradStep(
            self.model, self.task.loss, self.work, self.precision
        )
        self.description = f"one site after another, by {type(self.step).__name__}"
        self.delta, self.num_params = torch.empty_like(flatten(self.model)), num_params(self.model)

    def train(
        self,
        params: torch.Tensor,
        visits: Visits,
        optimizers: Optimizers = (),
        first_step: int = 0,
        replicas: Replicas = (),
    ) -> Iterator[SiteUpdate]:
        """Train one site after another. A site with a model of its own goes on with it."""
        self.set_training()
        self.step.first_step = first_step
        nothing = [None] * len(visits)
        for parts, optimizer, replica in zip(visits, optimizers or nothing, replicas or nothing, strict=True):
            began = time.perf_counter()
            self.step.start(params if replica is None else replica.params, optimizer)
            losses = self._steps(parts, params, replica)
            self.step.finish(params, self.delta)
            magnitude = magnitude_of(self.delta, self.num_params).item()
            update = SiteUpdate(self.delta, magnitude, *losses, time.perf_counter() - began)
            if optimizer is not None and update.usable:  # a diverged site keeps its former state
                self.step.save(optimizer)
            if replica is not None and update.usable:
                replica.params.copy_(self.step.local())
            yield update

    def memory_bytes(self, num_sites: int) -> int:
        """Bytes of one site, whatever the block."""
        return super().memory_bytes(1)

    def _steps(self, parts: list[np.ndarray], params: torch.Tensor, replica: Replica | None) -> list[float]:
        """Train on these parts of a site's visits, in batches; the mean loss at the time of the visit, and those of the
        first and the last batch."""
        losses = torch.zeros(3, dtype=torch.float64, device=self.device)
        num_visits = num_steps = 0
        for part in parts:
            for batch in torch.tensor(part, dtype=torch.int64, device=self.device).split(
                self.work.batch_size
            ):
                if replica is not None and num_steps == replica.steps:
                    self.step.merge(params, replica)
                num_steps += 1
                # Prepared batch by batch: in the cache, a third of the time of the whole site at once, and memory
                # bounded.
                inputs = self.task.prepare(self.inputs.index_select(0, batch))
                loss = self.step(inputs, self.labels.index_select(0, batch))
                losses[0].add_(loss, alpha=len(batch))
                if not num_visits:
                    losses[1] = loss
                num_visits += len(batch)
        if replica is not None and num_steps <= replica.steps:  # nothing to visit
            self.step.merge(params, replica)
        if num_visits:
            losses[2] = loss
            losses[0] /= num_visits
        return losses.tolist()
