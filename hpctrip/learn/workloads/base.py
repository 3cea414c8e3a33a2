"""The contract of a workload: data, model, loss and the paper's hyper-parameters (Table 2)."""

from __future__ import annotations

from typing import ClassVar, Literal

from hpctrip.base.component import Component, Registry
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.task import Task, checked


class Workload(Component):
    """Base of all workloads. Class attributes `lr`, `batch_size`, `local_epochs` are the paper's (Table 2)."""

    lr: ClassVar[float]
    batch_size: ClassVar[int]
    local_epochs: ClassVar[float]
    optimizer: ClassVar[Literal["sgd", "adamw"]] = "sgd"
    weight_decay: ClassVar[float] = 0.0

    def prepare_data(self, seed: int) -> None:
        """Do once per node whatever `task` would repeat per rank (render, decompress): safe to call in every process.

        Raises InputError that names the file where the data is missing or damaged.
        """

    def task(self, seed: int) -> Task:
        """Load the prepared data (memory-mapped) and say how to train on it."""
        raise NotImplementedError

    def checked_task(self, seed: int) -> Task:
        """The task, or InputError where its samples and labels are none."""
        return checked(self.task(seed), f"workload.kind = {self.kind!r}")

    def local_work(self, given: LocalWork) -> LocalWork:
        """What a site does in a round: as given, and where that says nothing, this workload's own."""
        return given.filled(
            lr=self.lr,
            batch_size=self.batch_size,
            local_epochs=float(self.local_epochs),
            optimizer=self.optimizer,
            weight_decay=self.weight_decay,
        )


WORKLOADS = Registry("workload", default="emnist")
