"""The contract of a workload: data, model, loss and the paper's hyper-parameters (Table 2)."""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key
from hpctrip.base.errors import InputError
from hpctrip.base.inputs import resolved, validate
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.task import Task, checked


class Stated(NamedTuple):
    """What an input says of a training set."""

    num_samples: int
    has_groups: bool
    """Whether its samples have natural owners."""


class Workload(Component):
    """Base of all workloads. The class attributes are what [train] means where it is silent: the paper's (Table 2).
    None: the input has to say it."""

    lr: ClassVar[float | None] = None
    batch_size: ClassVar[int | None] = None
    local_epochs: ClassVar[float] = 1
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "sgd"
    weight_decay: ClassVar[float] = 0.0
    has_owners: ClassVar[bool | None] = None
    """Whether its training samples have natural owners; None: only the data tell."""

    def check_data(self) -> None:
        """Raises InputError where files or packages that it needs are not there, as far as that costs no computing."""

    def stated(self) -> Stated | None:
        """What is known of its training set before the data are read: as many samples as `train_samples` asks for.
        None: nothing."""
        num_samples = getattr(self, "train_samples", None)
        known = num_samples is not None and self.has_owners is not None
        return Stated(num_samples, self.has_owners) if known else None

    def prepare_data(self, seed: int) -> None:
        """Do once per node whatever `task` would repeat per rank (render, decompress): safe to call in every process.

        Raises InputError that names the file where the data is missing or damaged.
        """

    def task(self, seed: int) -> Task:
        """Load the prepared data (memory-mapped) and say how to train on it."""
        raise NotImplementedError

    def checked_task(self, seed: int) -> Task:
        """The task, or InputError where its samples and labels are none."""
        return checked(self.task(seed), config_key("workload", self))

    def local_work(self, given: LocalWork) -> LocalWork:
        """What a site does in a round: as given, and where that says nothing, this workload's own."""
        return given.filled(
            lr=self.lr,
            batch_size=self.batch_size,
            local_epochs=float(self.local_epochs),
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )

    def checked_local_work(self, given: LocalWork) -> LocalWork:
        """The local work, or InputError where it is none: every value within its bounds, nothing absent that a site
        needs to know."""
        work, place = self.local_work(given), config_key("workload", self)
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
