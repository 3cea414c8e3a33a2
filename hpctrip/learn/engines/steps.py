"""The contract of engines, and the steps of a site's local training: the contract of a step, and the general step by
autograd.

Also the tensor helpers that engines and evaluation share. The local model lives in `weights`, tensors in whatever
memory layout trains fastest; the global model and the delta are flat vectors (see learn.params). `start` and `finish`
convert, once per site.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import nn

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.learn.aggregate import origin
from hpctrip.learn.engines.base import Precision, SiteUpdate
from hpctrip.learn.engines.optimizers import RULES, num_slots
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.overlap import Replica
from hpctrip.learn.params import buffers, entries, flatten, num_params
from hpctrip.learn.task import Task


def resident(array: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """The array as a tensor on the device. On a CPU it shares the array's memory: mapped data stay on disk."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # we never write
        return torch.from_numpy(array).to(device)


def views(model: nn.Module, flat: torch.Tensor) -> dict[str, torch.Tensor]:
    """The flat vector (see learn.params) as views named and shaped like the model's tensors, in their order."""
    shapes = {name: tensor.shape for name, tensor in entries(model).items()}
    chunks = flat.split([shape.numel() for shape in shapes.values()])
    return {name: chunk.view(shape) for (name, shape), chunk in zip(shapes.items(), chunks, strict=True)}


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """The context of a forward pass in "bfloat16" (weights and updates stay float32); nothing for the others."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def allow_tf32(precision: Precision) -> None:
    """Let a GPU's matrix products and convolutions round to TF32 (10 bits) where "tf32" asks for it, else not at all.

    PyTorch's own default allows it in convolutions.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def be_deterministic() -> None:
    """Let PyTorch use only bitwise reproducible algorithms; called before anything is computed on a GPU.

    cuBLAS needs a workspace of fixed size for it. Filling every new tensor, which PyTorch adds, would only find
    mistakes.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False


def channels_last(weight: torch.Tensor) -> torch.Tensor:
    """A copy whose strides are channels-last where it has four dimensions (else contiguous).

    `Tensor.contiguous(memory_format=...)` returns a weight of one input channel as it is, because both layouts hold
    it in the same order. But the convolution looks at the strides, and a contiguous first layer takes all that
    follow down the slow path: for CNN(3, (16, 32), 128) and a batch of 20, 1,580 us instead of 250 for the first
    convolution and 1,410 us instead of 190 for its pooling.
    """
    layout = torch.channels_last if weight.dim() == 4 else torch.contiguous_format
    return torch.empty_like(weight, memory_format=layout).copy_(weight)


def seed_generators(number: int, device: torch.device) -> None:
    """Seed the global generators from which a user's code may draw: torch's for the CPU and this device, numpy's and
    Python's."""
    torch.default_generator.manual_seed(number)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(number)
    np.random.seed(number % 2**32)
    random.seed(number)


def generators(device: torch.device) -> tuple:
    """The states of these generators, to notice that something has drawn from them."""
    states = [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])
    key, position = np.random.get_state()[1:3]
    return *(state.numpy().tobytes() for state in states), key.tobytes(), position, random.getstate()


def seed_draws(device: torch.device, seed: int, round: int, site: int) -> None:
    """Seed what a model's forward pass draws from (dropout), by the stream (seed, "forward", round, site)."""
    seed_generators(int(stream(seed, "forward", round, site).integers(2**63)), device)


def gradients_of(loss: torch.Tensor, weights: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The gradients of a scalar, dense; 0 where it does not depend on a weight, as of an expert without samples."""
    if not loss.requires_grad:
        return tuple(map(torch.zeros_like, weights))
    gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
    return tuple(g if g.layout == torch.strided else g.to_dense() for g in gradients)


Visits = list[list[np.ndarray]]
"""The samples that each site visits (`LocalWork.visits`), indices into the training set, in parts such as the passes
over its shard; each part is cut into consecutive batches, of which the last may be smaller."""
Optimizers = Sequence[torch.Tensor | None]
"""The state of each site's optimiser, float32 [state_length]."""
Replicas = Sequence[Replica | None]
"""The own model of each site, None where it starts from the global one. For the sequential engine only."""


class Engine:
    """Base of engines, which train the sites of one block from the same global model and return their updates; of work
    in which nothing is absent (`Workload.local_work`).

    Results must not depend on which other sites are in the block (to float tolerance for `stacked`, to the bit for
    `sequential`), nor on earlier calls.
    """

    name: ClassVar[str]
    sites_per_block: ClassVar[int]
    """Sites in the largest block, unless the input sets another size."""
    description: str
    """One line for the user on how the sites are trained."""

    def __init__(
        self,
        task: Task,
        work: LocalWork,
        device: torch.device | str = "cpu",
        precision: Precision = "float32",
        model: nn.Module | None = None,
    ):
        """`model` is one of the task on the device; evaluation may use it, too. None: a new one."""
        self.task, self.work, self.device, self.precision = task, work, torch.device(device), precision
        self.inputs, self.labels = resident(task.train.inputs, device), resident(task.train.labels, device)
        self.model = (task.build_model().to(device) if model is None else model).train()
        allow_tf32(precision)

    def train(
        self, params: torch.Tensor, visits: Visits, optimizers: Optimizers = (), first_step: int = 0
    ) -> Iterator[SiteUpdate]:
        """Train every site of the block from the global model, one flat float32 vector `params` (see learn.params),
        which is never modified. Yields one update per site, in their order; a site without visits has
        delta 0 and loss 0. `first_step` is the number of the first step in the run (`LocalWork.lr_at`).

        The states of the sites' optimisers are read at the start and overwritten at the end; where they are None, or
        none are given, optimisers start anew.
        """
        raise NotImplementedError

    def set_training(self) -> None:
        """Put the model into training mode, which evaluation has left; 7 us a module, so only where it has."""
        if not self.model.training:
            self.model.train()

    def fitting(self, params: torch.Tensor, visits: Visits) -> int:
        """How many of the sites with these visits, the first ones, can be one block on this device."""
        return len(visits)

    def check(self, place: str, smallest: int) -> None:
        """Train a site on `smallest` samples, as many as the smallest batch has. Raises InputError at `place`, the
        input key of the workload, where that fails."""
        try:
            [*self.train(flatten(self.model), [[np.arange(smallest)]])]
        except InputError:
            raise
        except Exception as error:  # whatever a model's own code or its kernels raise
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            hint = "change the model or train.batch_size"
            if self.name != "sequential":
                hint += ', or set engine.name = "sequential"'
            if smallest < (self.work.batch_size or 0):
                hint += ", or give train.local_steps, whose batches are full"
            if "deterministic" in reason:
                hint += ", or set engine.deterministic = false"
            problem = (
                f"gave a model that the {self.name} engine cannot train on a batch of {smallest} ({reason})"
            )
            raise InputError(place, problem, hint) from None

    def memory_bytes(self, num_sites: int) -> int:
        """Bytes of the float32 vectors for training `num_sites` sites at once: their weights, gradients, updates and
        optimiser states, without activations and data."""
        return 4 * num_params(self.model) * (3 + num_slots(self.work)) * num_sites


class Step:
    """Base of all steps. `step(inputs, labels)` makes one step and returns the mean loss before it."""

    first_step = 0
    """Number of a site's first step in the run, by which its learning rate is scheduled."""

    def __init__(self, weights: list[torch.Tensor]):
        self.weights = weights
        """The local model in the order of `model.parameters()`, its elements in the same order, its layout free."""

    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Train on one batch: prepared inputs [B, ...], labels [B, ...] -> mean loss, a scalar tensor."""
        raise NotImplementedError

    @torch.no_grad()
    def start(self, params: torch.Tensor, saved: torch.Tensor | None = None) -> None:
        """Begin a site: the local model becomes the global one, the flat vector `params`. Leaves nothing of the last.

        `saved` is the state of the site's optimiser; None: it starts anew.
        """
        for tensor, start in zip(self.tensors(), self._views(params), strict=True):
            tensor.copy_(start)

    @torch.no_grad()
    def finish(self, params: torch.Tensor, delta: torch.Tensor) -> None:
        """End a site: write the local minus the global model into `delta`, of the length of `params`."""
        starts, outs = self._views(params), self._views(delta)
        for tensor, start, out in zip(self.tensors(), starts, outs, strict=True):
            torch.sub(tensor.to(out.dtype) if tensor.dtype == torch.bool else tensor, start, out=out)

    def save(self, saved: torch.Tensor) -> None:
        """End a site: write the state of its optimiser into `saved`. A step without state writes nothing."""

    def tensors(self) -> list[torch.Tensor]:
        """The local model's tensors in the order of the flat vector."""
        return self.weights

    @torch.no_grad()
    def local(self) -> torch.Tensor:
        """The local model as a flat vector, a copy."""
        return torch.cat([tensor.reshape(-1) for tensor in self.tensors()])

    @torch.no_grad()
    def merge(self, params: torch.Tensor, replica: Replica) -> None:
        """Take a fragment of the global model into the local one."""
        local, part = self.local(), replica.part
        local[part].lerp_(params[part], replica.blend)
        for tensor, merged in zip(self.tensors(), self._views(local), strict=True):
            tensor.copy_(merged)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Views of the flat vector in the tensors' shapes."""
        tensors = self.tensors()
        chunks = flat.split([tensor.numel() for tensor in tensors])
        return [chunk.view(tensor.shape) for tensor, chunk in zip(tensors, chunks, strict=True)]


class AutogradStep(Step):
    """The general step: any model, any loss, every option of LocalWork."""

    def __init__(self, model: nn.Module, loss: Callable, work: LocalWork, precision: Precision = "float32"):
        self.model, self.loss, self.work, self.precision = model, loss, work, precision
        for p in model.parameters():
            # frozen ones stay where they are, as in a mapped file, unless their layout is slow
            if p.requires_grad or p.dim() == 4 or not p.is_contiguous():
                p.data = channels_last(p.data)
        super().__init__([p for p in model.parameters() if p.requires_grad])
        self.buffers = [*buffers(model)]
        self.rule = RULES[work.optimizer](self.weights, work)

    @torch.no_grad()
    def start(self, params: torch.Tensor, saved: torch.Tensor | None = None) -> None:
        """Begin a site at the global model, its optimiser at rest or where it stopped."""
        super().start(params)
        self.anchor = self._views(params)
        self.rule.start(saved)
        self.num_steps = 0

    @torch.no_grad()
    def finish(self, params: torch.Tensor, delta: torch.Tensor) -> None:
        """End a site; what buffers were is `learn.aggregate.origin`."""
        super().finish(
            origin(params, sum(w.numel() for w in self.weights)) if self.buffers else params, delta
        )

    def tensors(self) -> list[torch.Tensor]:
        """Weights and buffers; a model may replace a buffer by another tensor."""
        return [*self.weights, *(self.model.get_buffer(name) for name in self.buffers)]

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
        return loss.detach(), gradients_of(loss, self.weights)

    @torch.no_grad()
    def _update(self, gradients: tuple[torch.Tensor, ...]) -> None:
        lr = self.work.lr_at(self.first_step + self.num_steps)
        self.num_steps += 1
        for weight, direction in self.rule.directions(gradients, self.anchor):
            weight.sub_(direction, alpha=lr)
