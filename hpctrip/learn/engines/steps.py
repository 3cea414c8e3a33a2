"""Steps of a site's local training: their contract, and the general step for any model, by autograd.

The local model lives in `weights`, tensors in whatever memory layout trains fastest; the global model and the delta
are flat vectors (see learn.params). `start` and `finish` convert, once per site.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from hpctrip.learn.engines.base import Precision, autocast, channels_last
from hpctrip.learn.engines.rules import RULES
from hpctrip.learn.local_work import LocalWork


class Step:
    """Base of all steps. `step(inputs, labels)` makes one step and returns the mean loss before it."""

    def __init__(self, weights: list[torch.Tensor]):
        self.weights = weights
        """The local model in the order of `model.parameters()`, its elements in the same order, its layout free."""
        self._views: dict[str, tuple[torch.Tensor, list[torch.Tensor]]] = {}

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Train on one batch: prepared inputs [B, ...], labels [B, ...] -> mean loss, a scalar tensor."""
        raise NotImplementedError

    @torch.no_grad()
    def start(self, params: torch.Tensor, saved: torch.Tensor | None = None) -> None:
        """Begin a site: the local model becomes the global one, `params` [num_params]. Leaves nothing of the last.

        `saved` is the state of the site's optimiser; None: it starts anew.
        """
        for weight, start in zip(self.weights, self._split("params", params), strict=True):
            weight.copy_(start)

    @torch.no_grad()
    def finish(self, params: torch.Tensor, delta: torch.Tensor) -> None:
        """End a site: write local minus global parameters into `delta` [num_params]."""
        starts, outs = self._split("params", params), self._split("delta", delta)
        for weight, start, out in zip(self.weights, starts, outs, strict=True):
            torch.sub(weight, start, out=out)

    def save(self, saved: torch.Tensor) -> None:
        """End a site: write the state of its optimiser into `saved`. A step without state writes nothing."""

    def _split(self, role: str, flat: torch.Tensor) -> list[torch.Tensor]:
        """Views of the flat vector in the weights' shapes. The last of each role is cached: a round's sites share two
        vectors, and making the views takes as long as filling them where models are tiny."""
        if role not in self._views or self._views[role][0] is not flat:
            chunks = flat.split([weight.numel() for weight in self.weights])
            views = [chunk.view(weight.shape) for weight, chunk in zip(self.weights, chunks, strict=True)]
            self._views[role] = flat, views
        return self._views[role][1]


class AutogradStep(Step):
    """The general step: any model, any loss, every option of LocalWork."""

    def __init__(self, model: nn.Module, loss: Callable, work: LocalWork, precision: Precision = "float32"):
        self.model, self.loss, self.work, self.precision = model, loss, work, precision
        for p in model.parameters():
            p.data = channels_last(p.data)
        super().__init__([p for p in model.parameters() if p.requires_grad])
        self.rule = RULES[work.optimizer](self.weights, work)

    @torch.no_grad()
    def start(self, params: torch.Tensor, saved: torch.Tensor | None = None) -> None:
        """Begin a site at the global model, its optimiser at rest or where it stopped."""
        super().start(params)
        self.anchor = self._split("params", params)
        self.rule.start(saved)
        self.num_steps = 0

    @torch.no_grad()
    def save(self, saved: torch.Tensor) -> None:
        """Write the rule's state into `saved`."""
        self.rule.save(saved, self.num_steps)

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Forward, backward, update: gradients are taken, not accumulated, so nothing has to be cleared."""
        first, *others = self.work.micro_batches(len(labels))
        loss, gradients = self._gradients(inputs[first], labels[first], len(labels))
        for part in others:
            more, added = self._gradients(inputs[part], labels[part], len(labels))
            loss, gradients = loss + more, tuple(map(torch.add, gradients, added))
        self._update(gradients)
        return loss

    def _gradients(
        self, inputs: torch.Tensor, labels: torch.Tensor, num_samples: int
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Contribution of a part of a batch of `num_samples` to the batch's mean loss and gradients."""
        with autocast(self.precision, inputs.device):
            loss = self.loss(self.model(inputs), labels)
        if len(labels) < num_samples:
            loss = loss * (len(labels) / num_samples)
        return loss.detach(), torch.autograd.grad(loss, self.weights)

    @torch.no_grad()
    def _update(self, gradients: tuple[torch.Tensor, ...]) -> None:
        work, rule = self.work, self.rule
        self.num_steps += 1
        rule.begin_step()
        # Not in place: autograd may return one tensor for two parameters.
        for i, (weight, gradient) in enumerate(zip(self.weights, gradients, strict=True)):
            if work.prox_mu:
                gradient = gradient.add(weight - self.anchor[i], alpha=work.prox_mu)
            weight.sub_(rule.direction(i, weight, gradient), alpha=work.lr)
