"""Server optimisers (Eq. 2): the step that applies the averaged update to the global model. Shapes: P parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.validate import instance
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.learn.params import check_finite, check_params, pieces

if TYPE_CHECKING:
    import torch


def elementwise(step: Callable) -> Callable:
    """Mark a `Server.step` that computes each entry from the same entry of its arguments alone: long vectors then go
    through it in pieces. A step that overrides it is not marked."""
    step.elementwise = True
    return step


class Server(Component):
    """Base of server optimisers: how the averaged update (a pseudo-gradient) changes the global model."""

    weights: Literal["samples", "uniform", "processed"] = "samples"
    """p_i: proportional to the site's samples (Eq. 1), equal, or proportional to the samples that it has visited."""
    on_diverged: Literal["stop", "drop"] = "stop"
    """Reaction to an update that is not finite or exceeds the fixed-point range: stop the run, or drop the update. A
    round in which every update diverged always stops the run."""
    lr: float = Field(1.0, gt=0)
    """Server learning rate; 1 adds the averaged update unchanged (Eq. 2)."""

    def initial_slots(self, num_params: int) -> torch.Tensor:
        """The optimiser's state before its first step, float64 [num_slots, P]."""
        return _zeros(0, num_params)

    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """New float32 parameters [P]; `slots` is changed in place. Not called in a round in which no update arrives.
        `update` is overwritten later. A step that is marked `elementwise` is called for pieces of the vectors."""
        raise NotImplementedError

    def apply(
        self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor, out: torch.Tensor
    ) -> None:
        """Write the parameters after `step` into `out` [P]. Raises InputError where they are no float32 vector [P]."""
        place = config_key("server", self)
        for part in self._parts(params):
            stepped = self.step(params[part], slots[:, part], update[part])
            out[part] = check_params(stepped, params[part], place, "the new parameters")

    def _parts(self, params: torch.Tensor) -> list[slice]:
        return pieces(params) if getattr(self.step, "elementwise", False) else [slice(None)]

    def checked_slots(self, num_params: int) -> torch.Tensor:
        """The initial state, after a trial step from it on a small update. Raises InputError where the state is not
        float64 [num_slots, P], or the new parameters are no finite float32 vector [P]."""
        import torch

        place = config_key("server", self)
        slots = instance(self.initial_slots(num_params), torch.Tensor, place, "its state")
        if slots.dtype != torch.float64 or slots.dim() != 2 or slots.shape[1] != num_params:
            dtype = str(slots.dtype).removeprefix("torch.")
            bound = f"it must be float64 [num_slots, {num_params}]"
            raise InputError(place, f"gave its state as {dtype} {list(slots.shape)}", bound)
        part = self._parts(torch.empty(num_params))[0]
        params = torch.zeros(num_params)[part]
        update = torch.full_like(params, 1e-3, dtype=torch.float64)
        self.apply(params, slots[:, part].clone(), update, out=params)
        check_finite(params, place, "the new parameters")
        return slots


def _zeros(num_slots: int, num_params: int) -> torch.Tensor:
    """A state at rest, float64 [num_slots, P]."""
    import torch

    return torch.zeros(num_slots, num_params, dtype=torch.float64)


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
        return _zeros(1 if self.momentum else 0, num_params)

    @elementwise
    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """As torch.optim.SGD with the update in place of the negative gradient."""
        if self.momentum:
            velocity = slots[0].mul_(self.momentum).add_(update)
            update = update + self.momentum * velocity if self.nesterov else velocity
        return (self.lr * update).add_(params).float()


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
        slots = _zeros(2, num_params)
        slots[1] = self.tau**2
        return slots

    @elementwise
    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """m, v, then w += lr m / (sqrt(v) + tau)."""
        first, second = slots[0], slots[1]
        first.mul_(self.beta1).add_(update, alpha=1 - self.beta1)
        second.mul_(self.beta2).addcmul_(update, update, value=1 - self.beta2)
        return (params.double() + self.lr * first / (second.sqrt() + self.tau)).float()


@SERVERS.add
class DelayedNesterov(Server):
    """Nesterov's momentum that moves only at every `buffer`-th step, on the mean of the updates since (Async Local-SGD,
    arXiv 2401.09135: delayed Nesterov with momentum activation 0), for rounds of single updates."""

    kind = "delayed-nesterov"
    momentum: float = Field(0.9, ge=0, lt=1)
    """Weight of the past updates."""
    buffer: int = Field(32, ge=1)
    """N: steps between two changes of the momentum; each update counts 1 / N at once."""

    def initial_slots(self, num_params: int) -> torch.Tensor:
        """The momentum, the sum of the updates since it moved, and their number, which is the same everywhere."""
        return _zeros(3, num_params)

    @elementwise
    def step(self, params: torch.Tensor, slots: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
        """w += lr u / N; at every N-th step m = beta m + (sum of u) / N and w += lr (beta m + u / N)."""
        moved, added, count = slots
        added.add_(update)
        count.add_(1)
        change = update / self.buffer
        if count[0] == self.buffer:
            moved.mul_(self.momentum).add_(added, alpha=1 / self.buffer)
            change = change.add_(moved, alpha=self.momentum)
            added.zero_()
            count.zero_()
        return (self.lr * change).add_(params).float()
