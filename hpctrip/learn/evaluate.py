"""Evaluation on the test set, counted in integers, so that sums over any number of ranks give the same bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.config.component import Component
from hpctrip.config.identity import NotInTraining
from hpctrip.learn.task import Dataset, Task

if TYPE_CHECKING:
    import torch
    from torch import nn

LOSS_SCALE = 2**20
"""The loss sum is held in units of 2^-20, about 1e-6, rounded once per batch."""
LOSS_CEILING = 2**16
"""A batch whose mean loss is not a number, infinite, or above this counts as this: no int64 sum of up to 1.3e8 samples
overflows, and a diverged model shows as a loss of up to 65,536. Its correct predictions are counted all the same."""


class Evaluate(Component):
    """Evaluation of the global model on held-out data."""

    every_rounds: NotInTraining[int] = Field(1, ge=1)
    """Evaluate after every this number of rounds, and after round max_rounds."""
    max_samples: int | None = Field(None, ge=1)
    """Number of held-out samples to use, drawn at random, the same in every run. Absent: all."""
    batch_size: int = Field(500, ge=1, le=10**9)
    """Samples per batch; batches have fixed boundaries, so that results do not depend on the ranks."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: `max_samples` are drawn at random; once they were the first."""
        return 1 if self.max_samples is None else 2

    def due(self, round: int, last_round: int) -> bool:
        """Whether the model is evaluated after this round. `last_round` is the last that the input allows."""
        return round % self.every_rounds == 0 or round == last_round

    def chosen(self, test: Dataset) -> Dataset:
        """The samples of the test set that are used, in its order: all, or `max_samples` from the stream (0,
        "evaluate")."""
        if self.max_samples is None or self.max_samples >= len(test):
            return test
        index = np.sort(stream(0, "evaluate").choice(len(test), self.max_samples, replace=False))
        return Dataset(test.inputs[index], test.labels[index])


def eval_batches(num_samples: int, batch_size: int = 500) -> list[slice]:
    """The test set cut at fixed boundaries: a batch gives the same counts whichever rank evaluates it."""
    return [slice(first, min(first + batch_size, num_samples)) for first in range(0, num_samples, batch_size)]


def evaluate(task: Task, model: nn.Module, params: torch.Tensor, slices: Iterable[slice]) -> dict[str, int]:
    """Counts of the model with the flat vector `params` over these batches of the test set, on the device of `params`:
    predictions `correct` and `seen`, and `loss_sum`, the sum of their losses in units of 1 / LOSS_SCALE.

    The model lends its structure (and is put into evaluation mode); its own parameters are neither read nor changed.
    Classes are the last dimension of the model's output; each label is one prediction.
    """
    import torch
    from torch.func import functional_call

    from hpctrip.learn.engines.steps import channels_last, resident, views
    from hpctrip.learn.params import entries

    device = params.device
    model = model.to(device).eval()
    with torch.inference_mode():
        like = entries(model)
        tensors = {name: channels_last(t).to(like[name].dtype) for name, t in views(model, params).items()}
        total = torch.zeros(3, dtype=torch.int64, device=device)
        for batch in slices:
            x, y = (resident(array[batch], device) for array in (task.test.inputs, task.test.labels))
            prepared = task.prepare(x)
            if prepared.data_ptr() == x.data_ptr():  # a model may work on its inputs in place
                prepared = prepared.clone()
            outputs = functional_call(model, tensors, (prepared,))
            if outputs.shape[:-1] != y.shape:
                problem = f"its model gave outputs {list(outputs.shape)} for labels {list(y.shape)}"
                raise InputError(
                    "workload", problem, "keep the dimension of the batch, also of a single sample"
                )
            correct = (outputs.argmax(-1) == y).sum()
            seen = torch.full_like(correct, y.numel())
            # bounded before the cast: a NaN cast to int64 is some number
            loss = task.loss(outputs, y).double().nan_to_num(nan=LOSS_CEILING)
            loss_sum = loss.clamp(-LOSS_CEILING, LOSS_CEILING) * y.numel() * LOSS_SCALE
            total += torch.stack([correct, seen, loss_sum.round().long()])
    return dict(zip(("correct", "seen", "loss_sum"), total.tolist(), strict=True))
