"""The contract of a workload: data, model, loss and the paper's hyper-parameters (Table 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.validate import instance, integers
from hpctrip.config.component import Component, Registry, config_key, is_own
from hpctrip.config.inputs import resolved, validate
from hpctrip.config.plugins import code_name, named_code, user_code
from hpctrip.config.sources import named_files
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.partition import Partition
from hpctrip.learn.samples import checked_samples
from hpctrip.learn.task import Task

if TYPE_CHECKING:
    from torch import nn


class Workload(Component):
    """Base of all workloads. The class attributes are the defaults of [train], the paper's (Table 2); None: the input
    has to set the key."""

    lr: ClassVar[float | None] = None
    batch_size: ClassVar[int | None] = None
    local_epochs: ClassVar[float] = 1
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "sgd"
    weight_decay: ClassVar[float] = 0.0
    has_owners: ClassVar[bool | None] = None
    """Whether its training samples have natural owners; None: only the data tell."""

    def check_data(self) -> None:
        """Raises InputError where files or packages that it needs are not there, as far as that costs no computing."""

    def described_data(self) -> str:
        """Numbers of the user's samples for `check`, as far as they cost no computing; empty: none."""
        return ""

    def check_model(self) -> None:
        """Raises InputError where the key `model` names code, `file.py:Name`, that is not there."""
        own_model(getattr(self, "model", None), 1)

    @property
    def model_place(self) -> str:
        """The input key by which messages name the model."""
        model = getattr(self, "model", None)
        return f"workload.model = {model!r}" if code_name(model) else config_key("workload", self)

    @property
    def has_own_model(self) -> bool:
        """Whether the model is the user's: code that the key `model` names, or that of a plug-in's workload."""
        return bool(code_name(getattr(self, "model", None))) or not is_own(type(self))

    def check_partition(self, partition: Partition, num_sites: int) -> None:
        """Raises InputError where the training set, as far as the input sets its size (`train_samples`), cannot be
        shared out to the sites."""
        num_samples = getattr(self, "train_samples", None)
        if num_samples is not None and self.has_owners is not None:
            partition.check(num_samples, num_sites, self.has_owners)

    def prepare_data(self, seed: int) -> None:
        """Prepares data (renders, decompresses) once per node, so that `task` need not repeat it per rank. Every
        process may call it.

        Raises InputError that names the file where the data is missing or damaged.
        """

    def task(self, seed: int) -> Task:
        """The task on the prepared data, which are memory-mapped."""
        raise NotImplementedError

    def checked_task(self, seed: int) -> Task:
        """`task`, checked. Raises InputError where it is no Task, or where one of its sets is empty, has not as many
        labels (and groups) as samples, or has labels that are no classes; and for a plug-in, as `checked_samples`."""
        place = config_key("workload", self)
        with np.errstate():  # a plug-in may change it
            task = instance(self.task(seed), Task, place, "its task")
        task = replace(task, train=task.train.native(place), test=task.test.native(place))
        for name, data in (("training", task.train), ("test", task.test)):
            sizes = {"inputs": len(data.inputs), "labels": len(data.labels)}
            if data.groups is not None:
                sizes["groups"] = len(data.groups)
            if len(set(sizes.values())) > 1 or not len(data):
                counts = ", ".join(f"{size} {part}" for part, size in sizes.items())
                raise InputError(
                    place, f"gave {counts} as its {name} set", "one or more, equally many of each"
                )
            integers(data.labels, np.shape(data.labels), 0, task.num_classes - 1, place, f"{name} labels")
            if data.labels.dtype != np.int64:
                raise InputError(
                    place, f"gave {name} labels of type {data.labels.dtype}", "they must be int64"
                )
        return task if is_own(type(self)) else checked_samples(task, place)

    def model_files(self, tensors: Mapping[str, np.ndarray]) -> dict[str, bytes]:
        """{name: content} of a folder from which the model's own library loads the trained `tensors` by name. Raises
        InputError where there is no such library."""
        raise InputError(
            config_key("workload", self),
            "has a model that no library knows as a folder",
            "name a file for it that ends in .safetensors",
        )

    def local_work(self, train: LocalWork) -> LocalWork:
        """Local training in a round: the input's table [train], its absent keys filled with this workload's own values.
        Raises InputError where a value is out of its bounds, options exclude each other, or a key is absent that a site
        needs."""
        own = {key: getattr(self, key) for key in ("lr", "batch_size", "optimizer", "weight_decay")}
        if train.local_steps is None:
            own["local_epochs"] = float(self.local_epochs)
        work, place = train.with_defaults(**own), config_key("workload", self)
        if work.momentum and work.optimizer != "sgd":
            raise InputError(
                f"train.momentum = {work.momentum:g}",
                f"the optimiser is {work.optimizer}, which has none",
                'set train.beta1, or train.optimizer = "sgd"',
            )
        try:
            validate(resolved(work), LocalWork)
        except InputError as error:
            raise InputError(place, f"gave train.{error.faults[0]}") from None
        absent = [key for key in own if getattr(work, key) is None]
        if absent:
            raise InputError(
                place, f"gave no {absent[0]}", f"set {', '.join(f'train.{key}' for key in absent)}"
            )
        return work


class PreparedWorkload(Workload):
    """Base of workloads whose data are arrays in the cache, made or read once per node as the key `data` says."""

    embedded: ClassVar[str]
    """The value of `data` that names no files: synthetic data, made here."""
    origins: ClassVar[tuple[str, str]]
    """Descriptions of the synthetic data, and of data from files."""

    @property
    def synthetic(self) -> bool:
        """Whether the data are made here."""
        return self.data == self.embedded

    @property
    def path(self) -> Path:
        """The file or folder of the data."""
        return Path(self.data).resolve()

    @property
    def origin(self) -> str:
        """Description of the data, with the path of those from files."""
        synthetic, from_files = self.origins
        return synthetic if self.synthetic else f"{from_files} from {self.path}"

    def check_data(self) -> None:
        """The files that its keys name."""
        for files in named_files(self):
            files.find(files.value)

    def prepare_data(self, seed: int) -> None:
        """Fill the cache. Raises InputError that names the file that is missing or damaged."""
        self.folder(seed)

    def folder(self, seed: int) -> Path:
        """The folder of the prepared arrays. Its key holds everything that they depend on."""
        raise NotImplementedError


class SampledWorkload(PreparedWorkload):
    """Base of the prepared workloads of whose data a run may take a random subset."""

    train_samples: int | None = Field(None, ge=1, le=100_000_000)
    """Number of training samples, a random subset by the run's seed. Absent: all."""
    test_samples: int | None = Field(None, ge=1, le=100_000_000)
    """Number of test samples, a random subset by the run's seed. Absent: all."""

    def subset(self, part: str, num_samples: int, source: str, seed: int) -> np.ndarray:
        """Sorted indices of a random subset of the `num_samples` that `source` has of a part: as many as the key
        `{part}_samples` says, drawn from the run's seed; None: all. Raises InputError where there are fewer."""
        limit = getattr(self, f"{part}_samples")
        if limit is None:
            return np.arange(num_samples)
        if limit > num_samples:
            raise InputError(
                f"workload.{part}_samples",
                f"{limit:,}, but {source} has {num_samples:,}",
                "ask for fewer, or leave the key out for all",
            )
        drawn = stream(seed, f"{self.kind}/{part}_samples")
        return np.sort(drawn.choice(num_samples, limit, replace=False))


def own_model(model: str | None, num_classes: int) -> Callable[[], nn.Module] | None:
    """The function that builds the user's model, if `workload.model` is `file.py:Name`; else None."""
    if not code_name(model):
        return None
    place, name = f"workload.model = {model!r}", named_code(model, "workload.model")

    def build() -> nn.Module:
        with user_code(
            place, f"fails as {name.__name__}({num_classes})", "it is called with the number of classes"
        ):
            return name(num_classes)

    return build


WORKLOADS = Registry("workload", default="emnist")
