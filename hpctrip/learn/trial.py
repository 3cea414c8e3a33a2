"""The trial of a model that is not hpctrip's own: before the first round, a few samples show whether it keeps what
training and evaluation assume.

* The parameters, the samples and the seeds decide what a site learns, and the parameters alone how a model is
  evaluated: all else that training changes is a buffer. Otherwise results would depend on the sites that a rank has
  trained before.
* The stacked engine and `train.micro_batch` also need that samples do not meet in a batch, and that the loss of a batch
  is the mean of its samples' losses.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from hpctrip.base.errors import FAULT_EXIT_CODE, HpctripError, InputError, blame, cause
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked
from hpctrip.learn.engines.steps import generators, resident, seed_generators
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.params import buffers, digest_of, entries, flatten, named_tensors
from hpctrip.learn.task import Dataset, Task

MOST_SAMPLES = 4
"""Training samples of a trial, and test samples."""
MOST_CLASSES = 256
"""Classes whose losses are compared."""
MOST_BUILT_TWICE = 50_000_000
"""Parameters above which no second model is built."""
MOST_VALUES = 10_000
"""Values outside of parameters and buffers that are compared."""
LARGEST_INTEGER = 2**24
"""Bound of the integers in buffers that training changes: they travel as float32."""
CLOSE = 1e-4
"""Relative difference that rounding explains."""


class Trial:
    """The trial of a new model. Its methods raise InputError at `place`, the input key of the model."""

    def __init__(self, task: Task, model: nn.Module, work: LocalWork, init_seed: int, place: str):
        """`task` has built the model after the generators had been seeded with `init_seed`."""
        rows = _rows_of_many_classes(task.train.labels)
        self.task = replace(task, train=Dataset(task.train.inputs[rows], task.train.labels[rows]))
        self.model, self.work, self.init_seed, self.place = model, work, init_seed, place
        self.device = next(model.parameters()).device
        train, tests = self.task.train, task.test.inputs[:MOST_SAMPLES]
        self.inputs, self.labels, self.tests = (
            resident(np.array(each), self.device) for each in (train.inputs, train.labels, tests)
        )
        self.rows = np.arange(len(rows))

    def run(self, stacked: bool) -> str:
        """The reason why sites must be trained one after another, empty where there is none; with `stacked`, that
        engine is tried, too. The model is new again afterwards, and its persistent buffers are those that training
        changes."""
        try:
            self.start = self._new_tensors()
            outputs, beside_others, draws = self._try_training()
            reason = self._why_no_mean(outputs, beside_others)
            if reason and (self.work.micro_batch or self.work.batch_size) < self.work.batch_size:
                problem = f"{reason}, so the parts of a batch do not add up to it"
                raise InputError(f"train.micro_batch = {self.work.micro_batch}", problem, "leave it out")
            if changed := [*buffers(self.model)]:
                reason = f"its model has the buffer {changed[0]}, which each site changes"
            if draws:
                reason = "its model draws random numbers in training"
            self._reset()
            if stacked and not reason:
                reason = self._why_not_stacked()
            return reason
        except HpctripError:
            raise
        except Exception as error:  # whatever a model's own code or its kernels raise
            if [*traceback.walk_tb(error.__traceback__)][-1][0].f_globals["__name__"].startswith("hpctrip."):
                raise
            text, code = blame(error)
            self._refuse(f"fails in training: {cause(error) if code == FAULT_EXIT_CODE else text}", "")

    def _refuse(self, problem: str, hint: str) -> NoReturn:
        raise InputError(self.place, f"gave a model that {problem}", hint) from None

    def _try_training(self) -> tuple[torch.Tensor, torch.Tensor, bool]:
        """Compute a batch's loss and evaluate, twice, with another batch in between; the first time with gradients.
        Returns the outputs for both batches, whose first halves are the same samples, and whether random numbers are
        drawn. Raises InputError where the second time differs."""
        written = {name: (tensor, tensor._version) for name, tensor in named_tensors(self.model).items()}
        if isinstance(self.task.loss, nn.Module) and _trained(self.task.loss):
            self._refuse("is trained on a loss with parameters of its own", "make them part of the model")
        outputs, loss = self._train()
        if not loss.requires_grad:
            self._refuse("has a loss that depends on no trainable parameter", "do not detach its output")
        torch.autograd.grad(loss, _trained(self.model), allow_unused=True)
        drawn = generators(self.device)
        self._mark_buffers(written)
        tests, state = self._evaluate(), dict(islice(_state(self.model, self.task), MOST_VALUES))
        half = len(self.rows) // 2
        beside_others = self._outputs(np.concatenate([self.rows[:half], np.roll(self.rows, 1)[half:]]))
        self._reset()
        again = *self._train(), self._evaluate()
        state_again = dict(islice(_state(self.model, self.task), MOST_VALUES))
        for name in sorted(state.keys() | state_again.keys()):
            if state.get(name) != state_again.get(name):
                problem = f"changes {name} in training, of which neither other ranks nor a resumed run know"
                self._refuse(problem, "register it as a buffer")
        # as far as the device repeats itself
        is_exact = self.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
        if not all(map(_same if is_exact else _close, (outputs, loss, tests), again)):
            problem = "gives other outputs for the same parameters, samples and seeds"
            self._refuse(problem, "keep its state in buffers, and draw from global generators only")
        seed_generators(self.init_seed, self.device)
        return outputs.detach(), beside_others.detach(), drawn != generators(self.device)

    def _train(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs and loss of the samples in training."""
        outputs = self._outputs(self.rows)
        return outputs, self.task.loss(outputs, self.labels)

    def _outputs(self, rows: np.ndarray) -> torch.Tensor:
        seed_generators(self.init_seed, self.device)
        return self.model.train()(self.task.prepare(self.inputs[rows]))

    @torch.no_grad()
    def _evaluate(self) -> torch.Tensor:
        """Outputs of test samples."""
        seed_generators(self.init_seed, self.device)
        seeded, model = generators(self.device), self.model.eval()
        outputs = functional_call(model, entries(model), (self.task.prepare(self.tests.clone()),))
        if generators(self.device) != seeded:
            self._refuse(
                "draws random numbers in evaluation", "draw them in its forward pass, if self.training"
            )
        return outputs

    def _mark_buffers(self, before: Mapping[str, tuple[torch.Tensor, int]]) -> None:
        """Make the buffers persistent that training has written, the others constants. `before` holds all tensors with
        their versions at its start."""
        model = self.model
        after = named_tensors(model)
        if late := sorted(after.keys() ^ before.keys()):
            self._refuse(f"makes or drops {late[0]} when it is called", "make it in its constructor")
        if [*entries(model.eval())] != [*entries(model.train())]:
            self._refuse(
                "has other trainable parameters after train() than after eval()", "freeze them for good"
            )
        for name, (tensor, version) in before.items():
            now = after[name]
            is_written = now is not tensor or tensor._version != version
            if isinstance(tensor, nn.Parameter):
                if is_written and not tensor.requires_grad:
                    self._refuse(f"changes the parameter {name}, which is not trained", "make it a buffer")
                continue
            is_written = is_written or not _same(self.start[name], now)  # batch_norm counts no version
            if is_written:
                self._check_buffer(f"changes its buffer {name}", self.start[name], now)
            path, _, leaf = name.rpartition(".")
            model.get_submodule(path).register_buffer(leaf, now, persistent=is_written)

    def _check_buffer(self, problem: str, before: torch.Tensor, after: torch.Tensor) -> None:
        """Raise InputError where a buffer that training changes cannot be averaged."""
        kinds = [f"{str(b.dtype).removeprefix('torch.')} {list(b.shape)}" for b in (before, after)]
        if kinds[0] != kinds[1]:
            self._refuse(f"{problem} from {' to '.join(kinds)}", "keep its type and shape")
        if before.dtype.is_complex or before.dtype == torch.float64:
            self._refuse(f"{problem}, {kinds[0]}", "only float32 can be averaged")
        if not before.is_floating_point() and after.long().abs().max() >= LARGEST_INTEGER:
            self._refuse(problem, f"integers are kept up to {LARGEST_INTEGER:,}")

    @torch.no_grad()
    def _reset(self) -> None:
        """Make the model new again. A forward pass may change trained parameters, too."""
        for name, tensor in entries(self.model).items():
            tensor.copy_(self.start[name])

    def _new_tensors(self) -> dict[str, torch.Tensor]:
        """The trained parameters and buffers of the new model: of a second one, which must be equal, or copies where
        the model is large. Raises InputError where the task does not build the same model anew from the same seeds."""
        ours, copied = named_tensors(self.model), dict(self.model.named_buffers())
        if sum(tensor.numel() for tensor in ours.values()) > MOST_BUILT_TWICE:
            copied, theirs = entries(self.model) | copied, {}
        else:
            seed_generators(self.init_seed, self.device)
            other = self.task.build_model().to(self.device).train()
            if {*map(id, _trained(other))} & {*map(id, _trained(self.model))}:
                self._refuse("was built before: two calls give the same", "build a new one in every call")
            theirs = named_tensors(other)
            differing = sorted(ours.keys() ^ theirs.keys())
            differing += [name for name in ours if not differing and not _same(ours[name], theirs[name])]
            if differing:
                hint = "draw from the global generators of torch, numpy or Python, which are seeded"
                self._refuse(f"differs from call to call, whatever the seed ({differing[0]})", hint)
        return theirs | {name: tensor.detach().clone() for name, tensor in copied.items()}

    def _why_no_mean(self, outputs: torch.Tensor, beside_others: torch.Tensor) -> str:
        """The reason why the update from a batch is not the mean of those from its parts; empty where it is. The
        arguments are the outputs for two batches whose first halves are the same samples."""
        half = len(self.rows) // 2
        if half and not _close(outputs[:half], beside_others[:half]):
            return "samples meet in a batch of its model"
        loss, labels = self.task.loss, self.labels
        if (
            labels.dim() == 1 and outputs.dim() == 2
        ):  # a loss may weigh classes that no sample of the trial has
            labels = (
                torch.linspace(0, self.task.num_classes - 1, MOST_CLASSES, device=self.device).long().unique()
            )
            outputs = outputs[torch.arange(len(labels), device=self.device) % len(outputs)]
        together = loss(outputs, labels)
        try:
            each = [loss(outputs[i : i + 1], labels[i : i + 1]) for i in range(len(labels))]
            is_mean = _close(together, torch.stack(each).mean())
        except Exception:  # a loss may need several samples
            is_mean = False
        if is_mean:
            return ""
        twice = loss(torch.cat([outputs] * 2), torch.cat([labels] * 2))
        if _close(twice, 2 * together) and not _close(twice, together):
            self._refuse("is trained on the sum of its samples' losses", "let the loss be their mean")
        return "the loss of a batch is not the mean of its samples' losses"

    def _why_not_stacked(self) -> str:
        """The reason why the stacked engine cannot train the model, or trains it otherwise; empty where it can."""
        params, arguments = flatten(self.model), (self.task, self.work, self.device)
        alone, *_ = (
            site.delta for site in Sequential(*arguments, model=self.model).train(params, [[self.rows]])
        )
        try:
            stacked, _ = (
                site.delta for site in Stacked(*arguments, model=self.model).train(params, [[self.rows]] * 2)
            )
        except Exception as error:  # whatever torch.func.vmap raises
            return f"torch.func.vmap cannot map its model ({cause(error)})"
        self._reset()
        return "" if _close(alone, stacked, 1e-2) else "the stacked engine trains it otherwise"


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors have the same type, shape and values, NaN included."""
    if (x.dtype, x.shape) != (y.dtype, y.shape):
        return False
    return torch.equal(x, y) or digest_of(x) == digest_of(y)


def _close(x: torch.Tensor, y: torch.Tensor, tolerance: float = CLOSE) -> bool:
    """Whether two tensors differ by no more than rounding, relative to their largest entry."""
    return bool((x - y).abs().max() <= tolerance * torch.maximum(x.abs().max(), y.abs().max()))


def _rows_of_many_classes(labels: np.ndarray) -> np.ndarray:
    """Up to `MOST_SAMPLES` samples, of as many classes as may be."""
    rows = np.arange(min(MOST_SAMPLES, len(labels)))
    if labels.ndim > 1:
        return rows
    first = np.unique(labels[:10_000], return_index=True)[1]
    return np.array([*dict.fromkeys([*first[: len(rows)].tolist(), *rows.tolist()])][: len(rows)])


def _state(model: nn.Module, task: Task) -> Iterator[tuple[str, Any]]:
    """(name, value) of what the modules, and the task's functions, hold besides parameters and buffers: numbers, texts,
    and digests of arrays."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules", "training"):
                yield from _values(value, f"{path}.{name}".lstrip("."), seen)
    for name in ("loss", "prepare"):
        function = getattr(task, name)
        yield from _values(vars(function) if isinstance(function, nn.Module) else function, name, seen)


def _values(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bool | int | float | complex | str | bytes):
        yield name, value
    elif isinstance(value, torch.Tensor):
        yield name, digest_of(value)
    elif isinstance(value, np.ndarray):
        yield name, value.tobytes()
    elif id(value) not in seen and not isinstance(value, type | FunctionType | ModuleType | nn.Module):
        seen.add(id(value))
        if isinstance(value, Mapping):
            parts = [(f"[{key!r}]", item) for key, item in value.items()]
        elif isinstance(value, list | tuple | set | deque):
            parts = [(f"[{i}]", item) for i, item in enumerate(value)]
        else:
            parts = [(f".{key}", item) for key, item in getattr(value, "__dict__", {}).items()]
        for part, item in parts:
            yield from _values(item, name + part, seen)
