"""What all contenders share: the shapes, the models and one case on disk. Plain torch and numpy, nothing of hpctrip.

Shapes: N sites, k sites in a round's cohort, n samples of a site, R rounds, P parameters.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.backends.cudnn.allow_tf32 = False  # a GPU's float32 is float32 for all

MEAN, STD, NUM_CLASSES, EVAL_BATCH = 0.1736, 0.3317, 62, 500


class SmallCNN(nn.Module):
    """Two same-padded convolutions and two linear layers, in the order that is fastest: ReLU after pooling."""

    def __init__(self, kernel: int, channels: tuple[int, int], hidden: int):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], kernel, padding=kernel // 2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], kernel, padding=kernel // 2)
        self.fc1 = nn.Linear(channels[1] * 7 * 7, hidden)
        self.fc2 = nn.Linear(hidden, NUM_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 1, 28, 28] -> logits [B, 62]."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class FemnistCNN(nn.Module):
    """The CNN of Reddi et al. (2021) for FEMNIST, as FLUTE trains it, without its dropout, whose draws would differ."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(64 * 12 * 12, 128), nn.Linear(128, NUM_CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 1, 28, 28] -> logits [B, 62]."""
        x = F.relu(F.max_pool2d(self.conv2(F.relu(self.conv1(x))), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


@dataclass(frozen=True)
class Shape:
    """One workload of the comparison."""

    num_sites: int
    cohort: int
    samples: int
    """Training samples of every site."""
    cnn: tuple[int, tuple[int, int], int] | None
    """Kernel, channels and hidden units of the small CNN; None: FemnistCNN."""
    test_samples: int = 1000
    batch_size: int = 20
    lr: float = 0.001
    """Small, so that rounding does not grow over the steps: at 0.01 one and two threads end W1's round 1 % apart."""

    def build_model(self) -> nn.Module:
        """A fresh model."""
        return FemnistCNN() if self.cnn is None else SmallCNN(*self.cnn)


SHAPES = {
    "W1": Shape(20, 20, 400, (5, (32, 64), 512)),
    "W1s": Shape(20, 20, 400, (3, (16, 32), 128)),
    # W1s's model with half the channels and a quarter of the hidden units; then halved once more: per-site overhead.
    # One step a site, so nothing grows; but small steps would drown in the rounding of a sum over 1,000 sites.
    "W4": Shape(1000, 1000, 20, (3, (8, 16), 32), lr=1.0),
    "W4tiny": Shape(1000, 1000, 20, (3, (4, 8), 16), lr=1.0),
    "FLUTE": Shape(3400, 10, 200, None),
}


@dataclass(frozen=True)
class Case:
    """A folder with everything that decides the result: data, initial weights, sample order."""

    folder: Path
    shape: Shape

    @classmethod
    def open(cls, folder: str | Path) -> Case:
        """The case that `__main__` wrote there."""
        folder = Path(folder)
        return cls(folder, Shape(**json.loads((folder / "case.json").read_text())))

    def array(self, name: str) -> np.ndarray:
        """`train_images` [N * n, 28, 28] uint8, `train_labels` [N * n] int64, `test_*`, `params` [P] float32,
        `orders` [R, k, n] int64: the samples that each site of each round's cohort visits. Memory-mapped."""
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        return [self.array(name) for name in ("train_images", "train_labels", "orders")]

    def site_data(self, round: int, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Raw images and labels of one site in visiting order; `round` counts from 0."""
        images, labels, orders = self._arrays
        order = orders[round, position]
        return torch.from_numpy(images[order]), torch.from_numpy(labels[order])

    @cached_property
    def test(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Held-out images and labels."""
        return tuple(torch.from_numpy(np.array(self.array(f"test_{name}"))) for name in ("images", "labels"))

    @property
    def params(self) -> torch.Tensor:
        """The initial weights [P]."""
        return torch.from_numpy(np.array(self.array("params")))


def prepare(images: torch.Tensor) -> torch.Tensor:
    """uint8 [B, 28, 28] -> float32 [B, 1, 28, 28]."""
    return images.unsqueeze(1).float().mul_(1 / (255 * STD)).sub_(MEAN / STD)


def load(model: nn.Module, params: torch.Tensor) -> None:
    """Copy the flat vector [P] into the model."""
    for p, chunk in zip(
        model.parameters(), params.split([p.numel() for p in model.parameters()]), strict=True
    ):
        p.data.copy_(chunk.view(p.shape))


def flat(model: nn.Module) -> torch.Tensor:
    """The model's parameters as one vector [P]."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def batches(
    images: torch.Tensor, labels: torch.Tensor, size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Consecutive batches."""
    return zip(images.split(size), labels.split(size), strict=True)


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, shape: Shape) -> None:
    """One epoch of plain SGD in the order given: what a reader of the tutorials writes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=shape.lr)
    for x, y in batches(images, labels, shape.batch_size):
        optimizer.zero_grad()
        F.cross_entropy(model(prepare(x)), y).backward()
        optimizer.step()


@torch.inference_mode()
def accuracy(model: nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Share of the held-out samples classified correctly."""
    hits = sum((model(prepare(x)).argmax(1) == y).sum() for x, y in batches(*test, EVAL_BATCH))
    return float(hits) / len(test[1])


class Report:
    """Writes what a runner has to say: the seconds of every round, the parameters after the first and the last one."""

    def __init__(self, path: str):
        self.path, self.seconds, self.kept = Path(path), [], []
        self.start()

    def start(self) -> None:
        """The first round begins now."""
        self.began = time.perf_counter()

    def round(self, params: torch.Tensor) -> None:
        """A round has just ended with these parameters [P], and the next begins."""
        if params.is_cuda:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.began)
        self.kept[1:] = [params.cpu().numpy().copy()]
        self.start()

    def close(self) -> None:
        """`path`.json, and `path`.npy [2, P]."""
        np.save(self.path.with_suffix(".npy"), [self.kept[0], self.kept[-1]])
        self.path.with_suffix(".json").write_text(json.dumps({"seconds": self.seconds}))
