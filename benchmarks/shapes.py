"""The shapes that the engines are measured on: a model, random samples and labels for it, and what a site does.

W1 is LEAF's CNN, W1s the light one, W4 one half as wide with one step a site (1,000 sites), FLUTE the CNN that FLUTE
trains on FEMNIST, W2 LEAF's LSTM, which predicts every character, KWT-1 the smallest Keyword Transformer, LoRA
adapters of the tiny language model (needs the extra `[llm]`). Everything drawn here is synthetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from peers.common import FemnistCNN, prepare
from torch import nn

from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.cnn import CNN
from hpctrip.learn.models.kwt import KWT
from hpctrip.learn.models.lstm import CharLSTM, next_character_loss
from hpctrip.learn.task import Dataset, Task

Samples = tuple[np.ndarray, np.ndarray]
SGD = LocalWork(lr=0.01, batch_size=20, optimizer="sgd")
ADAMW = LocalWork(lr=0.001, batch_size=16, optimizer="adamw", weight_decay=0.1)


def images(draw: np.random.Generator, n: int) -> Samples:
    """[n, 28, 28] uint8 of 62 classes, mostly dark."""
    return (draw.random((n, 28, 28)) ** 4 * 255).astype(np.uint8), draw.integers(62, size=n)


def characters(draw: np.random.Generator, n: int) -> Samples:
    """[n, 80] uint8, and the characters that follow [n, 80]."""
    return draw.integers(80, size=(n, 80)).astype(np.uint8), draw.integers(80, size=(n, 80))


def clips(draw: np.random.Generator, n: int) -> Samples:
    """[n, 98, 40] float16 of 35 classes."""
    return draw.standard_normal((n, 98, 40)).astype(np.float16), draw.integers(35, size=n)


def tokens(draw: np.random.Generator, n: int) -> Samples:
    """[n, 128] uint8, and the tokens that follow [n, 128]."""
    return draw.integers(256, size=(n, 128)).astype(np.uint8), draw.integers(256, size=(n, 128))


@dataclass(frozen=True)
class Shape:
    """What a site trains, and how much of it."""

    build_model: Callable[[], nn.Module]
    draw: Callable[[np.random.Generator, int], Samples] = images
    prepare: Callable[[torch.Tensor], torch.Tensor] = prepare
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = F.cross_entropy
    num_classes: int = 62
    work: LocalWork = SGD
    samples: int = 400
    """Of a site."""

    def task(self, total: int, draw: np.random.Generator) -> Task:
        """As many random samples as all sites visit, and the model."""
        data = Dataset(*self.draw(draw, total))
        about = self.num_classes, self.build_model, self.prepare, self.loss
        return Task(data, data, *about, "random samples", synthetic=True)


def sites_of(num_sites: int, samples: int, draw: np.random.Generator) -> list[list[np.ndarray]]:
    """The visits of `num_sites` sites, each of which visits its own samples once."""
    return [[order] for order in draw.permutation(num_sites * samples).reshape(num_sites, samples)]


def lora() -> nn.Module:
    """Adapters of rank 8 over the tiny language model of random weights."""
    from hpctrip.learn.models import causal
    from hpctrip.learn.workloads.llm import Decoder

    return causal.build(causal.tiny(Decoder().config), rank=8, alpha=16.0)


SHAPES = {
    "W1": Shape(partial(CNN, 5, (32, 64), 512)),
    "W1s": Shape(partial(CNN, 3, (16, 32), 128)),
    "W2": Shape(partial(CharLSTM, 80, True), characters, torch.Tensor.long, next_character_loss, 80),
    "W4": Shape(partial(CNN, 3, (8, 16), 32), samples=20),
    "FLUTE": Shape(FemnistCNN, samples=200),
    "KWT-1": Shape(partial(KWT, 35), clips, torch.Tensor.float, num_classes=35, work=ADAMW, samples=160),
    "LoRA": Shape(lora, tokens, torch.Tensor.long, next_character_loss, 256, ADAMW, 64),
}
