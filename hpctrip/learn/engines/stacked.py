"""The stacked engine: all sites of a block advance together, one batched operation where the loop makes one per site.

Meant for GPUs, where a site's small operations would be bound by their launches; on a CPU it serves the tests (the
stacked weights leave the cache). Shapes: S sites of the block, T steps of the longest, B batch size.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from hpctrip.learn.engines.base import LocalWork, SiteUpdate, SiteWork
from hpctrip.learn.engines.tensors import resident, views

if TYPE_CHECKING:  # workloads bring their models, and these their steps: the engines stand below both
    from hpctrip.learn.workloads.base import Task


class Stacked:
    """Trains a block of sites at once, with parameters [S, ...] and the data resident on the device.

    No operation mixes sites, so the gradient of the *sum* of the sites' losses with respect to the stacked parameters
    holds each site's own gradient in its row. Works for any model whose samples do not meet inside a batch (no batch
    normalisation), that draws no random numbers (no dropout), and whose loss is a mean over the samples. A model may
    bring its own stacked forward, `model.stacked_forward(weights, x)`; every other one is mapped with torch.func.vmap.

    The host decides nothing on the device's numbers: shapes are fixed, sites with fewer batches are masked, and the
    host waits once, at the block's end, for the mean losses: what a CUDA graph of a step needs (not yet tried).
    """

    name = "stacked"

    def __init__(self, task: Task, work: LocalWork, device: torch.device | str = "cpu"):
        self.task, self.work, self.device = task, work, torch.device(device)
        self.inputs = resident(task.train.inputs, device)
        self.labels = resident(task.train.labels, device)
        self.model = task.build_model().to(device).train()
        self.forward = getattr(self.model, "stacked_forward", None) or partial(_mapped_forward, self.model)
        self.losses = vmap(vmap(_sample_loss(task.loss)))

    def train(self, params: torch.Tensor, sites: list[SiteWork]) -> Iterator[SiteUpdate]:
        """Train every site of the block from `params` [num_params]; a site without visits has delta 0 and loss 0."""
        if not sites:
            return
        began = time.perf_counter()
        schedule = Schedule.of(sites, self.work.batch_size, self.device)
        anchor = views(self.model, params.detach())
        # clone() and not contiguous(), which would hand out the global weights themselves where S is 1.
        weights = {
            name: w.expand(len(sites), *w.shape).clone().requires_grad_() for name, w in anchor.items()
        }
        velocity = {name: torch.zeros_like(w) for name, w in weights.items()} if self.work.momentum else {}
        loss_sum = torch.zeros(len(sites), dtype=torch.float64, device=self.device)
        for index, weight in zip(schedule.index, schedule.weight, strict=True):
            self._step(weights, velocity, anchor, loss_sum, index, weight)
        num_visits = [len(site.order) for site in sites]
        with torch.no_grad():
            deltas = torch.cat([(w - anchor[name]).flatten(1) for name, w in weights.items()], dim=1)
        loss_sums = loss_sum.tolist()  # the host waits here for the device
        wall_s = (time.perf_counter() - began) / max(1, sum(num_visits))
        for site, delta, total, visits in zip(sites, deltas, loss_sums, num_visits, strict=True):
            yield SiteUpdate(site.site, delta, total / max(1, visits), wall_s * visits)

    def _step(
        self,
        weights: dict[str, torch.Tensor],
        velocity: dict[str, torch.Tensor],
        anchor: dict[str, torch.Tensor],
        loss_sum: torch.Tensor,
        index: torch.Tensor,
        weight: torch.Tensor,
    ) -> None:
        """One SGD step of every site, in place: index [S, B] says which samples, weight [S, B] what each counts."""
        batch = index.flatten()
        x = self.task.prepare(self.inputs.index_select(0, batch)).unflatten(0, index.shape)
        y = self.labels.index_select(0, batch).unflatten(0, index.shape)
        losses = self.losses(self.forward(weights, x), y)  # [S, B]
        gradients = torch.autograd.grad((losses * weight).sum(), list(weights.values()))
        with torch.no_grad():
            real = weight > 0
            loss_sum += torch.where(real, losses, 0).sum(1)
            active = real.any(1)
            for (name, w), gradient in zip(weights.items(), gradients, strict=True):
                update = self._update(w, gradient, velocity.get(name), anchor[name])
                # A mask, not a factor 0: a site that has finished keeps its weights even if its update is NaN.
                w.sub_(torch.where(_like(active, w), update, 0), alpha=self.work.lr)

    def _update(
        self, w: torch.Tensor, gradient: torch.Tensor, velocity: torch.Tensor | None, anchor: torch.Tensor
    ) -> torch.Tensor:
        """What SGD subtracts, before the learning rate; torch.optim.SGD's rule with dampening 0, and FedProx's pull."""
        work = self.work
        if work.prox_mu:
            gradient = gradient.add(w - anchor, alpha=work.prox_mu)
        if work.weight_decay:
            gradient = gradient.add(w, alpha=work.weight_decay)
        # The velocity of a finished site goes on changing; nobody reads it.
        return gradient if velocity is None else velocity.mul_(work.momentum).add_(gradient)


@dataclass(frozen=True)
class Schedule:
    """Which samples every site visits in every step, padded to one shape, on the device."""

    index: torch.Tensor
    """[T, S, B] int64: rows of the training set. Padding repeats a sample of the same site."""
    weight: torch.Tensor
    """[T, S, B] float32: 1 / (number of real samples in the batch), 0 for padding, so that sums are means."""

    @classmethod
    def of(cls, sites: list[SiteWork], batch_size: int, device: torch.device | str) -> Schedule:
        """The schedule of a block, uploaded at once."""
        num_steps = max(-(-len(site.order) // batch_size) for site in sites)
        index = np.zeros((len(sites), num_steps * batch_size), dtype=np.int64)
        weight = np.zeros(index.shape, dtype=np.float32)
        for row, order in enumerate(site.order for site in sites):
            visits, ragged = len(order), len(order) % batch_size
            index[row, :visits] = order
            index[row, visits:] = order[-1] if visits else 0
            weight[row, : visits - ragged] = 1 / batch_size
            weight[row, visits - ragged : visits] = 1 / max(1, ragged)
        shape = (len(sites), num_steps, batch_size)
        return cls(*(torch.from_numpy(a.reshape(shape)).to(device).transpose(0, 1) for a in (index, weight)))


def _mapped_forward(model: nn.Module, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Parameters [S, ...] by name, x [S, B, ...] -> outputs [S, B, ...], for any model."""
    return vmap(lambda w, batch: functional_call(model, w, (batch,)))(weights, x)


def _sample_loss(loss: Callable) -> Callable:
    """The loss of one sample (a batch of one): their weighted sum is exact where batches are ragged."""
    return lambda output, label: loss(output.unsqueeze(0), label.unsqueeze(0))


def _like(mask: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """[S] -> [S, 1, 1, ...], to broadcast over the tensor."""
    return mask.view(-1, *[1] * (tensor.dim() - 1))
