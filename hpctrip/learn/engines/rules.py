"""Local optimisers: the direction in which a step moves the weights. One rule serves both engines.

Tensors are one site's weights, or the stacked ones of S sites [S, ...]: every operation is elementwise.
"""

from __future__ import annotations

import torch

from hpctrip.learn.local_work import LocalWork


class SGD:
    """torch.optim.SGD's rule with dampening 0: weight decay is an L2 penalty, the velocity starts at rest."""

    @staticmethod
    def num_slots(work: LocalWork) -> int:
        """Vectors of state: the velocity, where there is momentum."""
        return 1 if work.momentum else 0

    def __init__(self, weights: list[torch.Tensor], work: LocalWork):
        self.work = work
        self.velocity = [torch.zeros_like(w, requires_grad=False) for w in weights] if work.momentum else []

    def start(self) -> None:
        """Begin anew: nothing of the last site or round is left."""
        for velocity in self.velocity:
            velocity.zero_()

    def begin_step(self) -> None:
        """Called once before the directions of a step."""

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What weight number `i` loses in this step, before the learning rate. Never changes `gradient` or `weight`."""
        if self.work.weight_decay:
            gradient = gradient.add(weight, alpha=self.work.weight_decay)
        if self.work.momentum:
            gradient = self.velocity[i].mul_(self.work.momentum).add_(gradient)
        return gradient


class AdamW:
    """torch.optim.AdamW's rule (Loshchilov & Hutter 2019): decoupled weight decay, bias-corrected moments."""

    @staticmethod
    def num_slots(work: LocalWork) -> int:
        """Vectors of state: two moments."""
        return 2

    def __init__(self, weights: list[torch.Tensor], work: LocalWork):
        self.work = work
        self.first = [torch.zeros_like(w, requires_grad=False) for w in weights]
        self.second = [torch.zeros_like(w, requires_grad=False) for w in weights]
        # On the device and float64: a captured CUDA graph counts its own steps, and beta2^t of float32 is coarse.
        self.decay = torch.ones(2, dtype=torch.float64, device=weights[0].device)
        self.betas = torch.tensor([work.beta1, work.beta2], dtype=torch.float64, device=weights[0].device)

    def start(self) -> None:
        """Begin anew: nothing of the last site or round is left."""
        for moment in (*self.first, *self.second):
            moment.zero_()
        self.decay.fill_(1.0)

    def begin_step(self) -> None:
        """Called once before the directions of a step: one more step counts for the bias correction."""
        self.decay.mul_(self.betas)
        correction = 1 - self.decay
        self._first_scale = (1 / correction[0]).float()
        self._second_scale = correction[1].rsqrt().float()

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """What weight number `i` loses in this step, before the learning rate. Never changes `gradient` or `weight`."""
        first, second, work = self.first[i], self.second[i], self.work
        first.lerp_(gradient, 1 - work.beta1)
        second.mul_(work.beta2).addcmul_(gradient, gradient, value=1 - work.beta2)
        spread = second.sqrt().mul_(self._second_scale).add_(work.eps)
        direction = spread.reciprocal_().mul_(first).mul_(self._first_scale)
        return direction.add_(weight, alpha=work.weight_decay) if work.weight_decay else direction


RULES = {"sgd": SGD, "adamw": AdamW}


def site_bytes(num_params: int, work: LocalWork) -> int:
    """Memory of one site in training: float32 weights, gradients, update, and the optimiser's state."""
    return 4 * num_params * (3 + RULES[work.optimizer].num_slots(work))
