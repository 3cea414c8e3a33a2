"""A small synthetic task for the engines: random images, random labels, and the models to train on them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.task import Dataset, Task

MODELS = {
    "cnn 3x3": lambda: CNN(3, (4, 6), 16, num_classes=5),
    "cnn 5x5": lambda: CNN(5, (3, 5), 12, num_classes=5),
    "mlp": lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.Tanh(), nn.Linear(8, 5)),
}


def random_task(build_model, num_samples=60) -> Task:
    draw = np.random.default_rng(0)
    images = (draw.random((num_samples, 28, 28)) ** 4 * 255).astype(np.uint8)
    images[:, :8] = 0  # a blank margin, as real characters have: equal maxima in every pool
    data = Dataset(images, draw.integers(5, size=num_samples))
    return Task(
        train=data,
        test=data,
        num_classes=5,
        build_model=build_model,
        prepare=lambda x: x.unsqueeze(1).float() / 255 - 0.1,
        loss=F.cross_entropy,
        source="synthetic: random images and labels",
        synthetic=True,
    )


@pytest.fixture
def synthetic_task():
    """`synthetic_task(build_model)`: the same data for any model that takes [B, 1, 28, 28] to 5 classes."""
    return random_task


@pytest.fixture(params=MODELS)
def task(request) -> Task:
    torch.manual_seed(1)
    return random_task(MODELS[request.param])
