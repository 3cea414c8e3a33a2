"""Local optimisers: the direction in which a step moves the weights. One rule serves both engines.

Tensors are one site's weights, or the stacked ones of S sites [S, ...]: every operation is elementwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from hpctrip.learn.local_work import LocalWork


class Rule:
    """Base of local optimisers: their state from step to step, and how it is saved from round to round."""

    num_slots: ClassVar[Callable[[LocalWork], int]]
    """Tensors of state that the rule keeps for every weight."""

    def __init__(self, weights: list[torch.Tensor], work: LocalWork):
        self.work = work
        slots = range(type(self).num_slots(work))
        self.state = [[torch.zeros_like(w, requires_grad=False) for w in weights] for _ in slots]

    def start(self, saved: torch.Tensor | None = None) -> None:
        """Begin a site: at rest, or at the state of its last round, which `save` wrote into `saved` [state_length]."""
        tensors = [tensor for slot in self.state for tensor in slot]
        if saved is None:
            for tensor in tensors:
                tensor.zero_()
        else:
            for tensor, part in zip(tensors, saved[:-1].split([t.numel() for t in tensors]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def save(self, saved: torch.Tensor, num_steps: int) -> None:
        """Write the state after `num_steps` more steps into `saved`: the slots in turn, then the number of all
        steps."""
        torch.cat([tensor.reshape(-1) for slot in self.state for tensor in slot], out=saved[:-1])
        saved[-1] += num_steps

    def begin_step(self) -> None:
        """Called once before the directions of a step."""

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Direction in which weight number `i` descends in this step, before the learning rate. Never changes
        `gradient` or `weight`."""
        raise NotImplementedError


class SGD(Rule):
    """torch.optim.SGD's rule with dampening 0: weight decay is an L2 penalty, the velocity starts at rest."""

    @staticmethod
    def num_slots(work: LocalWork) -> int:
        """The velocity, where there is momentum."""
        return 1 if work.momentum else 0

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient with its L2 penalty, or the velocity that it drives."""
        if self.work.weight_decay:
            gradient = gradient.add(weight, alpha=self.work.weight_decay)
        if self.work.momentum:
            gradient = self.state[0][i].mul_(self.work.momentum).add_(gradient)
        return gradient


class AdamW(Rule):
    """torch.optim.AdamW's rule (Loshchilov & Hutter 2019): decoupled weight decay, bias-corrected moments."""

    @staticmethod
    def num_slots(work: LocalWork) -> int:
        """First and second moment."""
        return 2

    def __init__(self, weights: list[torch.Tensor], work: LocalWork):
        super().__init__(weights, work)
        # On the device and float64: a captured CUDA graph counts its own steps, and beta2^t of float32 is coarse.
        self.decay = torch.ones(2, dtype=torch.float64, device=weights[0].device)
        self.betas = torch.tensor([work.beta1, work.beta2], dtype=torch.float64, device=weights[0].device)

    def start(self, saved: torch.Tensor | None = None) -> None:
        """The bias correction goes on with the steps."""
        super().start(saved)
        if saved is None:
            self.decay.fill_(1.0)
        else:
            torch.pow(self.betas, saved[-1].double(), out=self.decay)

    def begin_step(self) -> None:
        """One more step counts for the bias correction."""
        self.decay.mul_(self.betas)
        correction = 1 - self.decay
        self._first_scale = (1 / correction[0]).float()
        self._second_scale = correction[1].rsqrt().float()

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The first moment over the root of the second, and the weight's own decay."""
        first, second, work = self.state[0][i], self.state[1][i], self.work
        first.lerp_(gradient, 1 - work.beta1)
        second.mul_(work.beta2).addcmul_(gradient, gradient, value=1 - work.beta2)
        spread = second.sqrt().mul_(self._second_scale).add_(work.eps)
        direction = spread.reciprocal_().mul_(first).mul_(self._first_scale)
        return direction.add_(weight, alpha=work.weight_decay) if work.weight_decay else direction


RULES: dict[str, type[Rule]] = {"sgd": SGD, "adamw": AdamW}


def state_length(num_params: int, work: LocalWork) -> int:
    """Length of a site's optimiser state from round to round; 0 where there is none, or the optimiser starts anew."""
    num_slots = RULES[work.optimizer].num_slots(work)
    return num_slots * num_params + 1 if work.keep_optimizer and num_slots else 0


def site_bytes(num_params: int, work: LocalWork) -> int:
    """Memory of one site in training: float32 weights, gradients, update, and the optimiser's state."""
    return 4 * num_params * (3 + RULES[work.optimizer].num_slots(work))
