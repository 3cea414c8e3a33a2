"""A workload: data, model and loss.

hpctrip --plugin NAME.py -o workload.kind=NAME -o stop.target_accuracy=0.8 -o stop.max_rounds=20
"""

import numpy as np
from torch import nn

from hpctrip.api import WORKLOADS, Dataset, Task, Workload, stream


@WORKLOADS.add
class Mine(Workload):
    """Points around ten centres (synthetic), told apart by a small network."""

    kind = "NAME"
    samples: int = 2000
    """Training samples."""

    lr = 0.1
    batch_size = 20

    def task(self, seed):
        """Every rank calls this with the same seed, and has to get the same: draw from `stream` alone. In place of the
        drawn points, load your own arrays: [n, ...] samples and [n] labels."""
        rng = stream(seed, "NAME")
        centres = 2 * rng.normal(size=(10, 8))

        def draw(num_samples):
            labels = rng.integers(0, 10, num_samples)
            points = centres[labels] + rng.normal(size=(num_samples, 8))
            return Dataset(points.astype(np.float32), labels)

        return Task(
            train=draw(self.samples),
            test=draw(500),
            num_classes=10,
            build_model=lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 10)),
            prepare=lambda points: points,  # a batch of samples as the model takes it
            loss=nn.functional.cross_entropy,
            source="points around ten centres (synthetic)",
            synthetic=True,
        )
