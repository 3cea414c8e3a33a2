"""The contract of a workload: data, model, loss and the paper's hyper-parameters (Table 2)."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from hpctrip.base.errors import InputError
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.inputs import resolved, validate
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.task import Task, check_task


class TrainingSize(NamedTuple):
    """Size of a training set, as far as the input sets it."""

    num_samples: int
    has_groups: bool
    """Whether its samples have natural owners."""


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

    def stated(self) -> TrainingSize | None:
        """Size of the training set before the data are read, from `train_samples`; None where the input does not set
        it."""
        num_samples = getattr(self, "train_samples", None)
        if num_samples is None or self.has_owners is None:
            return None
        return TrainingSize(num_samples, self.has_owners)

    def prepare_data(self, seed: int) -> None:
        """Prepares data (renders, decompresses) once per node, so that `task` need not repeat it per rank. Every
        process may call it.

        Raises InputError that names the file where the data is missing or damaged.
        """

    def task(self, seed: int) -> Task:
        """The task on the prepared data, which are memory-mapped."""
        raise NotImplementedError

    def checked_task(self, seed: int) -> Task:
        """`task`, checked. Raises InputError where its samples and labels cannot be trained on."""
        return check_task(self.task(seed), config_key("workload", self))

    def local_work(self, train: LocalWork) -> LocalWork:
        """Local training in a round: the input's table [train], its absent keys filled with this workload's own
        values."""
        return train.filled(
            lr=self.lr,
            batch_size=self.batch_size,
            local_epochs=float(self.local_epochs),
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )

    def checked_local_work(self, train: LocalWork) -> LocalWork:
        """`local_work`, checked. Raises InputError where it is no LocalWork, a value is out of its bounds, or a key is
        absent that a site needs."""
        work, place = self.local_work(train), config_key("workload", self)
        if not isinstance(work, LocalWork):
            raise InputError(
                place, f"gave a {type(work).__name__} as its local work", "it must be a LocalWork"
            )
        try:
            validate(resolved(work), LocalWork)
        except InputError as error:
            raise InputError(place, f"gave train.{error.faults[0]}") from None
        if absent := work.absent():
            raise InputError(
                place, f"gave no {absent[0]}", f"set {', '.join(f'train.{key}' for key in absent)}"
            )
        return work


WORKLOADS = Registry("workload", default="emnist")
