"""The contract of a workload: data, model, loss and the paper's hyper-parameters (Table 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import nn

from hpctrip.base.component import Component, Registry


@dataclass(frozen=True)
class Dataset:
    """Samples and labels as stored (usually memory-mapped uint8); a model sees them after `Workload.batch`."""

    inputs: np.ndarray
    """[num_samples, ...]"""
    labels: np.ndarray
    """[num_samples] int64"""
    groups: np.ndarray | None = None
    """[num_samples] int64: the natural owner (writer, role, speaker) of each sample, where the data has one."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Task:
    """Everything that training needs to know of a workload, built once per rank."""

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
    loop_only: str = ""
    """Why the stacked engine cannot train this model; empty where it can."""


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


def cache_dir() -> Path:
    """Where prepared data lives: $HPCTRIP_CACHE, or the user's cache folder."""
    import os

    import pooch

    return Path(os.environ.get("HPCTRIP_CACHE") or pooch.os_cache("hpctrip"))


WORKLOADS = Registry("workload", default="emnist")
