"""Local optimisers: rules by which a site's weights descend, and what they keep from round to round.

One rule serves both engines: its tensors are one site's weights, or the stacked ones of S sites [S, ...], and no
operation mixes sites.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from hpctrip.learn.local_work import LocalWork


class Rule:
    """Base of local optimisers: their state from step to step, and how it is saved from round to round."""

    def __init__(self, weights: list[torch.Tensor], work: LocalWork, stacked: bool = False):
        """`stacked`: the first dimension of the weights is that of the sites."""
        self.weights, self.work, self.stacked = weights, work, stacked
        self.weight_decay = [
            (work.weight_decay or 0.0) * (work.decay_vectors or w.dim() - stacked > 1) for w in weights
        ]
        slots = range(num_slots(work))
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

    def directions(
        self, gradients: Sequence[torch.Tensor], anchors: Sequence[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """(weight, direction) of every weight in one step; `anchors` are the weights of the global model."""
        if self.work.prox_mu:
            pulled = zip(gradients, self.weights, anchors, strict=True)
            # Not in place: autograd may return one tensor for two parameters.
            gradients = [g.add(weight - anchor, alpha=self.work.prox_mu) for g, weight, anchor in pulled]
        if self.work.clip_norm is not None:
            gradients = self._clipped(gradients)
        self.begin_step()
        for i, (weight, gradient) in enumerate(zip(self.weights, gradients, strict=True)):
            yield weight, self.direction(i, weight, gradient)

    def _clipped(self, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The gradients as torch.nn.utils.clip_grad_norm_ shortens them, those of each site by their own norm."""
        first = 1 if self.stacked else 0
        norms = torch.stack([torch.linalg.vector_norm(g.flatten(first), dim=-1) for g in gradients])
        scale = (self.work.clip_norm / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
        return [g * scale.view(-1, *[1] * (g.dim() - 1)) if self.stacked else g * scale for g in gradients]

    def begin_step(self) -> None:
        """Called once before the directions of a step."""

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Direction in which weight number `i` descends in this step, before the learning rate. Never changes
        `gradient` or `weight`."""
        raise NotImplementedError


class SGD(Rule):
    """torch.optim.SGD's rule with dampening 0: weight decay is an L2 penalty, the velocity starts at rest."""

    def direction(self, i: int, weight: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient with its L2 penalty, or the velocity that it drives."""
        if self.weight_decay[i]:
            gradient = gradient.add(weight, alpha=self.weight_decay[i])
        if self.work.momentum:
            gradient = self.state[0][i].mul_(self.work.momentum).add_(gradient)
        return gradient


class AdamW(Rule):
    """torch.optim.AdamW's rule (Loshchilov & Hutter 2019): decoupled weight decay, bias-corrected moments."""

    def __init__(self, weights: list[torch.Tensor], work: LocalWork, stacked: bool = False):
        super().__init__(weights, work, stacked)
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
        return direction.add_(weight, alpha=self.weight_decay[i]) if self.weight_decay[i] else direction


RULES: dict[str, type[Rule]] = {"sgd": SGD, "adamw": AdamW}


def num_slots(work: LocalWork) -> int:
    """Tensors of state that the optimiser keeps for every weight: AdamW's two moments, SGD's velocity if it has
    momentum."""
    return 2 if work.optimizer == "adamw" else int(work.momentum > 0)


def state_length(num_params: int, work: LocalWork) -> int:
    """Length of a site's optimiser state from round to round; 0 where there is none, or the optimiser starts anew."""
    slots = num_slots(work)
    return slots * num_params + 1 if work.keep_optimizer and slots else 0
