"""A learning task as engines and evaluation see it: samples, model and loss. A workload provides it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hpctrip.base.errors import FAULT_EXIT_CODE, InputError, blame, cause
from hpctrip.base.validate import instance
from hpctrip.learn.params import named_tensors

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels as stored (usually memory-mapped uint8); a model sees them after `Task.prepare`."""

    inputs: np.ndarray
    """[num_samples, ...]"""
    labels: np.ndarray
    """[num_samples] int64"""
    groups: np.ndarray | None = None
    """[num_samples] int64: the natural owner (writer, role, speaker) of each sample, where the data has one."""

    def __len__(self) -> int:
        return len(self.labels)

    def native(self, place: str) -> Dataset:
        """The same samples as torch takes them: contiguous arrays in this machine's byte order, also from lists and
        tensors. Raises InputError at `place` where they are no numbers, or some are masked."""

        def array(values: Any) -> np.ndarray:
            if hasattr(values, "detach"):  # a tensor; torch need not be imported to tell
                values = values.detach().cpu().numpy()
            try:
                made = np.asarray(values)
            except ValueError:  # rows of different lengths
                made = np.empty(0, object)
            if made.dtype.kind not in "biufc" or np.ma.is_masked(values):
                what = (
                    "masked values" if np.ma.is_masked(values) else f"a {type(values).__name__} of no numbers"
                )
                raise InputError(place, f"gave {what} in a data set", "give NumPy arrays of numbers")
            return np.ascontiguousarray(made, made.dtype.newbyteorder("="))

        return Dataset(
            *(each if each is None else array(each) for each in (self.inputs, self.labels, self.groups))
        )

    @property
    def nbytes(self) -> int:
        """Bytes of inputs and labels."""
        return self.inputs.nbytes + self.labels.nbytes


@dataclass(frozen=True)
class Task:
    """Data, model and loss of a workload, built once per rank."""

    train: Dataset
    test: Dataset
    num_classes: int
    build_model: Callable[[], nn.Module]
    """A freshly initialised model; initialisation draws from torch's global generator, which the caller seeds."""
    prepare: Callable[[torch.Tensor], torch.Tensor]
    """Raw inputs as stored -> what the model takes, on whatever device they are: e.g. uint8 -> (x/255 - mean)/std."""
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """(logits, labels) -> mean loss, a scalar tensor."""
    source: str = ""
    """One line on where the data came from, naming synthetic data as such."""
    synthetic: bool = False
    sequential_only: str = ""
    """The reason why the stacked engine cannot train this model; empty where it can."""
    digests: Mapping[str, str] = field(default_factory=dict)
    """{key of the workload: digest of its content as training sees it}. For other keys that name files, the digests of
    the files are recorded."""


def checked_model(task: Task, device: torch.device, place: str, trial: bool) -> nn.Module:
    """A new model of the task on the device; in a `trial` it is evaluated on two test samples, before the first round.

    Raises InputError at `place` where it is no nn.Module, its trainable parameters are not float32, one or more, it
    fails, its output has no classes for each label, or too few, or its loss is not one finite number.
    """
    import torch
    from torch import nn
    from torch.nn.functional import cross_entropy

    model = instance(task.build_model(), nn.Module, place, "its model")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(place, "gave a scripted or traced model", "return the module before torch.jit")
    if any(map(nn.parameter.is_lazy, model.parameters())):
        problem = "gave a model with layers whose sizes are open (nn.Lazy...)"
        raise InputError(place, problem, "set their sizes")
    model = model.to(device).train()
    types = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.requires_grad}
    if types != {"float32"}:
        kinds = f"of type {' and '.join(sorted(types))}" if types else "none"
        raise InputError(
            place, f"gave a model whose trainable parameters are {kinds}", "they must be float32"
        )
    if not trial:
        return model
    inputs, labels = (
        torch.from_numpy(np.array(a[:2])).to(device) for a in (task.test.inputs, task.test.labels)
    )
    before = named_tensors(model).keys()
    with torch.no_grad():
        prepared = instance(task.prepare(inputs), torch.Tensor, place, "its prepared inputs")
        try:
            outputs = model.eval()(prepared)
        except Exception as error:  # whatever a model's own code or its kernels raise
            shape = ", ".join(map(str, ["B", *prepared.shape[1:]]))
            reason, code = blame(error)  # with the line of a plug-in
            problem = f"gave a model that fails: {cause(error) if code == FAULT_EXIT_CODE else reason}"
            dtype = str(prepared.dtype).removeprefix("torch.")
            raise InputError(place, problem, f"it is called with {dtype} inputs [{shape}]") from None
        if late := sorted(named_tensors(model).keys() ^ before):
            problem = f"gave a model that makes or drops {late[0]} when it is called"
            raise InputError(place, problem, "make it in its constructor")
        outputs = instance(outputs, torch.Tensor, place, "its model's output")
        if outputs.dim() == 0 or outputs.shape[:-1] != labels.shape:
            bound = f"it must be {list(labels.shape)} times the classes"
            raise InputError(place, f"gave a model whose output is {list(outputs.shape)}", bound)
        if task.loss is cross_entropy and outputs.shape[-1] < task.num_classes:
            problem = f"gives {outputs.shape[-1]} outputs, the data have {task.num_classes} classes"
            raise InputError(place, problem, "the model is called with the number of classes")
        loss = instance(task.loss(outputs, labels), torch.Tensor, place, "its loss")
    if loss.dim() or not loss.isfinite():
        value = f"of shape {list(loss.shape)}" if loss.dim() else f"{loss:g} of its first model"
        raise InputError(place, f"gave a loss {value}", "it must be one finite number")
    return model
