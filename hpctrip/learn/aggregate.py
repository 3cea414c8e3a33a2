"""Eqs. 1 and 2: the order-free weighted sum of updates, and the server's step that applies it.

Shapes: P parameters, T tail integers.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, instance
from hpctrip.base.errors import InputError
from hpctrip.learn.door import finite, parameters

# A weighted update p_i * delta_i is summed as the integer rint(p_i * delta_i * 2^40): integer addition is associative,
# so any grouping of sites over ranks gives the same bits (a float64 reduce was seen to differ between 2, 3 and 5
# ranks). The resolution 2^-40 = 9e-13 lies far below a float32 update's own rounding. As sum p_i = 1 and
# |delta| < 2^20, the sum stays below 2^60: no overflow, whatever the number of sites.
FIXED_POINT = 2.0**40
LARGEST_UPDATE = 2.0**20


class PartialSum:
    """One rank's share of a round: sum p_i delta_i in fixed point and a tail of plain counters, in one int64 vector.

    One vector travels per rank and round, whatever the number of sites. Up to `most_tail` counters of the caller's
    choice follow the P parameters. The memory serves one round after another: new pages for 1.7 million parameters
    would cost more than adding a site's update.
    """

    def __init__(self, num_params: int, most_tail: int, device: torch.device):
        self._memory = torch.empty(num_params + most_tail, dtype=torch.int64, device=device)
        self._sum = self._memory[:num_params]
        self._scaled = torch.empty(num_params, dtype=torch.float64, device=device)
        self._integer = torch.empty(num_params, dtype=torch.int64, device=device)
        self.vector, self.tail = self._memory, self._memory[num_params:]
        self.vector.zero_()

    def begin(self, num_tail: int) -> None:
        """A new round: all zero, with so many counters."""
        if num_tail != len(self.tail):
            self.vector = self._memory[: len(self._sum) + num_tail]
            self.tail = self.vector[len(self._sum) :]
        self.vector.zero_()

    def add(self, delta: torch.Tensor, weight: float, magnitude: float | None = None) -> bool:
        """Add weight * delta; `delta` is float32 [P]. False, and nothing is added, where training diverged: an entry is
        not finite or beyond LARGEST_UPDATE. `magnitude` is `largest(delta)` where it is known.

        The check comes before the cast: rint(nan) as an integer is silently a number.
        """
        magnitude = float(largest(delta)) if magnitude is None else magnitude
        if not magnitude < LARGEST_UPDATE:
            return False
        torch.mul(self._scaled.copy_(delta), weight * FIXED_POINT, out=self._scaled)
        self._sum += self._integer.copy_(self._scaled.round_())
        return True


def partial_sum_bytes(num_params: int, num_tail: int) -> int:
    """Memory of a PartialSum: the vector that travels and two scratch vectors of 8 bytes a parameter."""
    return 8 * (num_params + num_tail) + 16 * num_params


def largest(deltas: torch.Tensor) -> torch.Tensor:
    """Largest magnitude in every update, [..., P] -> [...]; NaN where there is one."""
    # aminmax over a dimension takes ten times as long
    return torch.maximum(-deltas.amin(-1), deltas.amax(-1))


def mean_update(total: torch.Tensor) -> torch.Tensor:
    """Averaged update, float64 [P], from the summed fixed-point vector [P]."""
    return total.to(torch.float64) / FIXED_POINT


class Server(Component):
    """Base of server optimisers: how the averaged update (a pseudo-gradient) changes the global model."""

    weights: Literal["samples", "uniform"] = "samples"
    """p_i: proportional to the site's samples (Eq. 1), or equal."""
    on_diverged: Literal["stop", "drop"] = "stop"
    """When a site's update is not finite or beyond the fixed-point range: stop the run, or leave that update out of the
    round. A round in which every update diverged stops the run in any case."""
    lr: float = Field(1.0, gt=0)
    """Server learning rate; 1 adds the averaged update as it is (Eq. 2)."""

    def initial_slots(self, num_params: int) -> torch.Tensor:
        """The optimiser's state before its first step, float64 [num_slots, P]."""
        return torch.zeros(0, num_params, dtype=torch.float64)

    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """New float32 parameters [P]; `slots` is changed in place. Not called in a round in which nobody arrives."""
        raise NotImplementedError

    def checked_step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """The step, or InputError where it gives what are no parameters."""
        found = self.step(params, slots, update)
        return parameters(found, params, config_key("server", self), "the new parameters")

    def checked_slots(self, num_params: int) -> torch.Tensor:
        """The state before the first step, or InputError where it is none, or where a step from it, tried on a small
        update, gives what it must not."""
        slots, place = self.initial_slots(num_params), config_key("server", self)
        given = instance(slots, torch.Tensor, place, "its state")
        if given.dtype != torch.float64 or given.dim() != 2 or given.shape[1] != num_params:
            dtype = str(given.dtype).removeprefix("torch.")
            bound = f"it must be float64 [num_slots, {num_params}]"
            raise InputError(place, f"gave its state as {dtype} {list(given.shape)}", bound)
        found = self.checked_step(
            torch.zeros(num_params), given.clone(), torch.full((num_params,), 1e-3, dtype=torch.float64)
        )
        finite(found, place, "the new parameters")
        return slots


SERVERS = Registry("server optimiser", default="fedavg")


@SERVERS.add
class FedAvg(Server):
    """w += lr * update (Eq. 2), with momentum and Nesterov as options (DiLoCo's outer step: 0.9, Nesterov, lr 0.7)."""

    kind = "fedavg"
    momentum: float = Field(0.0, ge=0, lt=1)
    """Weight of the past updates."""
    nesterov: bool = False
    """Look one momentum step ahead."""

    def initial_slots(self, num_params: int) -> torch.Tensor:
        """The velocity, at rest, where there is momentum."""
        return torch.zeros(1 if self.momentum else 0, num_params, dtype=torch.float64)

    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """As torch.optim.SGD with the update in place of the negative gradient."""
        if self.momentum:
            velocity = slots[0].mul_(self.momentum).add_(update)
            update = update + self.momentum * velocity if self.nesterov else velocity
        return (params.to(torch.float64) + self.lr * update).to(torch.float32)


@SERVERS.add
class FedAdam(Server):
    """Adam on the averaged update (Reddi et al. 2021, Algorithm 2, with bias correction off as there)."""

    kind = "fedadam"
    lr: float = Field(0.01, gt=0)
    """Server learning rate."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of the first moment."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """Decay of the second moment."""
    tau: float = Field(1e-3, gt=0, le=1e6)
    """Adaptivity: added to the root of the second moment."""

    def initial_slots(self, num_params: int) -> torch.Tensor:
        """First and second moment: m = 0, v = tau^2."""
        slots = torch.zeros(2, num_params, dtype=torch.float64)
        slots[1] = self.tau**2
        return slots

    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """m, v, then w += lr m / (sqrt(v) + tau)."""
        first, second = slots[0], slots[1]
        first.mul_(self.beta1).add_(update, alpha=1 - self.beta1)
        second.mul_(self.beta2).addcmul_(update, update, value=1 - self.beta2)
        return (params.to(torch.float64) + self.lr * first / (second.sqrt() + self.tau)).to(torch.float32)
