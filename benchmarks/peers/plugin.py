"""A plug-in of hpctrip: the case as a workload, and FedAvg that leaves the final parameters where others can compare.

The models of the small CNN's shapes are hpctrip's own CNN (same weights in the same order), which brings its
hand-written step, or else a plain nn.Module such as a user brings, which autograd trains.
"""

from __future__ import annotations

import atexit
import os
import sys
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from common import NUM_CLASSES, Case, prepare

from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.server import SERVERS, FedAvg
from hpctrip.learn.task import Dataset, Task
from hpctrip.learn.workloads.base import WORKLOADS, Workload

_kept = []


@WORKLOADS.add
class PeersCase(Workload):
    """A case of benchmarks/peers: random pixels and labels (synthetic)."""

    kind: ClassVar[str] = "peers"
    lr: ClassVar[float] = 0.01
    batch_size: ClassVar[int] = 20
    local_epochs: ClassVar[int] = 1

    folder: str
    """The case."""
    hand_written: bool = True
    """Whether the CNN is hpctrip's own."""

    def task(self, seed: int) -> Task:
        """Map the arrays."""
        case = Case.open(self.folder)
        train, test = (
            Dataset(case.array(f"{part}_images"), case.array(f"{part}_labels")) for part in ("train", "test")
        )
        cnn = case.shape.cnn if self.hand_written else None
        model = partial(CNN, *cnn, num_classes=NUM_CLASSES) if cnn else case.shape.build_model
        return Task(
            train, test, NUM_CLASSES, model, prepare, F.cross_entropy, "random pixels", synthetic=True
        )


@SERVERS.add
class KeptFedAvg(FedAvg):
    """FedAvg; the parameters after the first and the newest round go to $PEERS_PARAMS once the process ends."""

    kind = "fedavg-kept"

    def step(self, params, slots, update):
        """As FedAvg."""
        after = super().step(params, slots, update)
        _kept[2:] = [after]  # the first call is the trial before the first round
        return after


@atexit.register
def _save() -> None:
    if len(_kept) > 1 and "PEERS_PARAMS" in os.environ:
        np.save(os.environ["PEERS_PARAMS"], [_kept[1].cpu().numpy(), _kept[-1].cpu().numpy()])
