"""A plug-in: points of four classes (synthetic), and a model with what a site changes besides its parameters (the
buffers of BatchNorm) and with random numbers in its forward pass (dropout)."""

from typing import ClassVar

import numpy as np
from torch import nn

from hpctrip.base.rng import stream
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.learn.workloads.base import Workload


@WORKLOADS.add
class Points(Workload):
    """Points (synthetic)."""

    kind: ClassVar[str] = "points"
    lr: ClassVar[float] = 0.1
    batch_size: ClassVar[int] = 8
    train_samples: int = 400
    """Number of points to train on."""
    test_samples: int = 200
    """Number of points to test on."""
    norm: bool = True
    """A layer of BatchNorm, without which points far from 0 are not learned."""
    dropout: float = 0.0
    """Fraction of the hidden units that are dropped in a step of training."""

    def task(self, seed: int) -> Task:
        """Clouds around four centres, all far from 0."""
        rng = stream(seed, "points")
        centres = 2 * rng.normal(size=(4, 8)) + 30
        labels = rng.integers(0, 4, self.train_samples + self.test_samples)
        points = (centres[labels] + rng.normal(size=(len(labels), 8)) / 2).astype(np.float32)
        train, test = (
            Dataset(points[part], labels[part])
            for part in (np.s_[: self.train_samples], np.s_[self.train_samples :])
        )
        return Task(
            train, test, 4, self.model, lambda x: x, nn.functional.cross_entropy, "points", synthetic=True
        )

    def model(self) -> nn.Module:
        """Two linear layers, what is asked for before and between them."""
        first = [nn.BatchNorm1d(8)] if self.norm else []
        return nn.Sequential(*first, nn.Linear(8, 32), nn.ReLU(), nn.Dropout(self.dropout), nn.Linear(32, 4))
