"""The stacked engine: all sites of a block advance together, one batched operation for one per site.

Meant for GPUs, where a site's small operations would be bound by their launches; on a CPU it serves the tests (the
stacked weights leave the cache). Shapes: S sites of the block, T steps of the longest, B batch size.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, vmap

from hpctrip.base.errors import InputError
from hpctrip.learn.aggregate import largest
from hpctrip.learn.engines.base import SiteUpdate
from hpctrip.learn.engines.optimizers import RULES
from hpctrip.learn.engines.steps import Engine, Optimizers, Visits, autocast, gradients_of, views
from hpctrip.learn.params import num_params

log = logging.getLogger(__name__)

WARM_UP_STEPS = 3
"""Before a capture, as PyTorch's notes on CUDA graphs ask: libraries allocate and choose their kernels then."""


class Stacked(Engine):
    """Trains a block of sites at once, with parameters [S, ...] and the data resident on the device.

    No operation mixes sites, so the gradient of the *sum* of the sites' losses with respect to the stacked parameters
    holds each site's own gradient in its row. Works for any model whose samples do not meet inside a batch (no batch
    normalisation), that draws no random numbers (no dropout), and whose loss is a mean over the samples. A model may
    bring its own stacked forward, `model.stacked_forward(weights, x)`; every other one is mapped with torch.func.vmap.

    The host decides nothing on the device's numbers: shapes are fixed, sites with fewer batches are masked, and the
    host waits once, at the end, for the mean losses. So on a GPU one step is captured in a CUDA graph for each number
    of sites, and replayed. Numbers of sites are rounded up to powers of two there, with sites that visit nothing, so
    that cohorts of any size need few graphs.
    """

    name = "stacked"
    sites_per_block = (
        32  # larger ones train small models faster on one GPU, but give fewer GPUs something to do
    )

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        task, on_gpu = self.task, self.device.type == "cuda"
        self.forward = getattr(self.model, "stacked_forward", None) or partial(mapped_forward, self.model)
        # of one sample as a batch of one: their weighted sum is exact where batches are ragged
        self.losses = vmap(vmap(lambda output, label: task.loss(output.unsqueeze(0), label.unsqueeze(0))))
        self.has_graphs = self.round_up = on_gpu
        self.stacks: dict[int, Stack] = {}
        self.description = "the sites of a block at once"

    def train(
        self, params: torch.Tensor, visits: Visits, optimizers: Optimizers = (), first_step: int = 0
    ) -> Iterator[SiteUpdate]:
        """Train all sites at once. Optimisers always start anew."""
        updates = self._tried(params, visits, first_step)
        if updates is None:  # again, without the tensors of other numbers of sites
            updates = self._tried(params, visits, first_step)
        if updates is None:
            problem = f"the memory of {self.device} is full with {len(visits)} sites"
            raise InputError("engine", problem, "end what else runs on it, or lower engine.sites_per_block")
        yield from updates

    def fitting(self, params: torch.Tensor, visits: Visits) -> int:
        """As many as memory holds when they train: all, or half, and so on. Raises InputError where it is none."""
        while self._tried(params, visits) is None:
            if len(visits) == 1:
                problem = f"the memory of {self.device} does not hold one site"
                raise InputError("engine", problem, "lower train.micro_batch or train.batch_size")
            visits = visits[: len(visits) // 2]
            log.warning("GPU memory is full: blocks have at most %d sites", len(visits))
        return len(visits)

    def _tried(self, params: torch.Tensor, visits: Visits, first_step: int = 0) -> list[SiteUpdate] | None:
        """The updates; None where memory runs out, of which earlier numbers of sites then take nothing."""
        self.set_training()
        try:
            return self._train_together(params, visits, first_step)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        # only here, outside of the handler: the error's traceback keeps what filled the memory
        self.stacks.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _train_together(self, params: torch.Tensor, visits: Visits, first_step: int) -> list[SiteUpdate]:
        began = time.perf_counter()
        num_sites = 1 << (len(visits) - 1).bit_length() if self.round_up else len(visits)
        if num_sites not in self.stacks:
            self.stacks[num_sites] = Stack(self, num_sites)
        stack = self.stacks[num_sites]
        batches = schedule(visits, num_sites, self.work.batch_size, self.device)
        deltas = stack.train(params.detach(), *batches, first_step)
        # The host waits here for the device: once for all that it wants to know, not once a site.
        numbers = torch.stack([largest(deltas).double(), stack.loss_sum, *stack.ends]).tolist()
        num_visits = [sum(map(len, parts)) for parts in visits]
        wall_s = (time.perf_counter() - began) / max(1, sum(num_visits))
        return [
            SiteUpdate(delta, magnitude, total / max(1, number), before, after, wall_s * number)
            for number, delta, magnitude, total, before, after in zip(
                num_visits, deltas, *numbers, strict=False
            )
        ]


def out_of_memory(error: BaseException | None) -> bool:
    """Whether the error, or one that caused it, is a lack of GPU memory. Memory that runs out during a graph's capture
    leaves the capture broken, and PyTorch raises another error over the first."""
    while error and not isinstance(error, torch.cuda.OutOfMemoryError):
        error = error.__cause__ or error.__context__
    return error is not None


class Stack:
    """The tensors of S sites that train together, and the step that advances all of them; made once, used often."""

    def __init__(self, engine: Stacked, num_sites: int):
        self.engine, work, device = engine, engine.work, engine.device
        self.flat = torch.zeros(num_params(engine.model), device=device)
        """The global model; `anchor` are its views."""
        self.anchor = views(engine.model, self.flat)
        self.weights = {
            name: torch.zeros(num_sites, *w.shape, device=device).requires_grad_()
            for name, w in self.anchor.items()
        }
        self.rule = RULES[work.optimizer](list(self.weights.values()), work, stacked=True)
        self.lr = torch.tensor(work.lr, device=device)
        """Learning rate of the next step, where it is scheduled."""
        self.loss_sum = torch.zeros(num_sites, dtype=torch.float64, device=device)
        self.ends = torch.zeros(2, num_sites, dtype=torch.float64, device=device)
        """Mean losses of every site's first batch and of its last."""
        self.begun = torch.zeros(num_sites, dtype=torch.bool, device=device)
        self.index = torch.zeros(num_sites, work.batch_size, dtype=torch.int64, device=device)
        self.weight = torch.zeros(num_sites, work.batch_size, device=device)
        # the step reads and writes tensors that stay where they are, as a CUDA graph needs
        self.run = captured(self._step) if engine.has_graphs else self._step

    @torch.no_grad()
    def train(
        self, params: torch.Tensor, index: torch.Tensor, weight: torch.Tensor, first_step: int = 0
    ) -> torch.Tensor:
        """Updates [S, num_params] of the sites of a `schedule`; `loss_sum` [S] and `ends` [2, S] then hold their
        losses."""
        self.flat.copy_(params)
        for name, w in self.weights.items():
            w.copy_(self.anchor[name].expand(w.shape))
        self.rule.start()
        for numbers in (self.loss_sum, self.ends, self.begun):
            numbers.zero_()
        work = self.engine.work
        for number, (indices, weights) in enumerate(zip(index, weight, strict=True), first_step):
            if work.is_scheduled:
                self.lr.fill_(work.lr_at(number))
            self.index.copy_(indices)
            self.weight.copy_(weights)
            self.run()
        return torch.cat([(w - self.anchor[name]).flatten(1) for name, w in self.weights.items()], dim=1)

    @torch.enable_grad()
    def _step(self) -> None:
        """One step of every site, in place: `index` [S, B] says which samples, `weight` [S, B] what each counts."""
        engine = self.engine
        first, *others = engine.work.micro_batches(self.index.shape[1])
        losses, gradients = self._gradients(first)
        for part in others:
            more, added = self._gradients(part)
            losses, gradients = torch.cat([losses, more], dim=1), tuple(map(torch.add, gradients, added))
        with torch.no_grad():
            real = self.weight > 0
            self.loss_sum += torch.where(real, losses, 0).sum(1)
            active = real.any(1)
            batch_loss = (losses.detach() * self.weight).sum(1).double()
            self.ends[0].copy_(torch.where(active & ~self.begun, batch_loss, self.ends[0]))
            self.ends[1].copy_(torch.where(active, batch_loss, self.ends[1]))
            self.begun |= active
            # Every site still active is at the same step; the rule's state of a finished one is never read.
            for w, update in self.rule.directions(gradients, list(self.anchor.values())):
                # A mask, not a factor 0: a site that has finished keeps its weights even if its update is NaN.
                mask = active.view(-1, *[1] * (w.dim() - 1))
                if engine.work.is_scheduled:  # a captured step reads the rate where it is
                    w.sub_(torch.where(mask, update * self.lr, 0))
                else:
                    w.sub_(torch.where(mask, update, 0), alpha=engine.work.lr)

    def _gradients(self, part: slice) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Losses [S, b] of a part of the batches, and what it adds to the gradients of all sites."""
        engine, index = self.engine, self.index[:, part]
        x = engine.task.prepare(engine.inputs.index_select(0, index.flatten())).unflatten(0, index.shape)
        y = engine.labels.index_select(0, index.flatten()).unflatten(0, index.shape)
        with autocast(engine.precision, engine.device):
            losses = engine.losses(engine.forward(self.weights, x), y)
        loss = (losses * self.weight[:, part]).sum()
        return losses.detach(), gradients_of(loss, list(self.weights.values()))


def schedule(
    visits: Visits, num_sites: int, batch_size: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """The samples that every site of a block visits in every step, padded to one shape, on the device.

    `index` [T, S, B] int64: rows of the training set; padding repeats a sample of the same site. `weight` [T, S, B]
    float32: 1 / (number of real samples in the batch), 0 for padding, so that sums are means. Up to `num_sites` there
    follow sites that visit nothing.
    """
    num_steps = max(sum(-(-len(part) // batch_size) for part in parts) for parts in visits)
    index = np.zeros((num_sites, num_steps * batch_size), dtype=np.int64)
    weight = np.zeros(index.shape, dtype=np.float32)
    for row, parts in enumerate(visits):
        first = 0
        for part in parts:
            end, ragged = first + len(part), len(part) % batch_size
            index[row, first:end] = part
            index[row, end:] = part[-1]
            weight[row, first : end - ragged] = 1 / batch_size
            weight[row, end - ragged : end] = 1 / max(1, ragged)
            first = end + -ragged % batch_size
    shape = (num_sites, num_steps, batch_size)
    on_device = (torch.from_numpy(a.reshape(shape)).to(device).transpose(0, 1) for a in (index, weight))
    return tuple(on_device)


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The replay of the step's CUDA graph: one launch instead of some forty. The step itself where it cannot be
    captured, as that of a model that copies tensors from the CPU. The warm-up changes the step's tensors, which hold
    no state yet."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        cause = str(error).partition("\n")[0]
        log.warning("the training step is launched operation by operation, not as a CUDA graph: %s", cause)
        return step
    return graph.replay


def mapped_forward(model: nn.Module, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Parameters [S, ...] by name, x [S, B, ...] -> outputs [S, B, ...], for any model."""
    return vmap(lambda w, batch: functional_call(model, w, (batch,)))(weights, x)
