"""The small convolutional classifier of the emnist workload, in the two sizes that the field uses.

Shapes: B batch, C channels. Input [B, 1, 28, 28] -> conv, pool, relu [B, C1, 14, 14] -> conv, pool, relu
[B, C2, 7, 7] -> linear, relu [B, hidden] -> linear [B, num_classes]. Stacked: S sites, each with its own weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.models.cnn_step import CNNStep


class CNN(nn.Module):
    """Two same-padded convolutions and two linear layers for 28x28 images.

    `CNN(3, (16, 32), 128)` is the light one (about 0.2 M parameters), `CNN(5, (32, 64), 512)` the one of LEAF (1.7 M).
    ReLU comes after max-pooling: both are monotone, so the result is the same and the ReLU touches a quarter as much.
    """

    def __init__(self, kernel: int, channels: tuple[int, int], hidden: int, num_classes: int = 62):
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], kernel, padding=kernel // 2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], kernel, padding=kernel // 2)
        self.fc1 = nn.Linear(channels[1] * 7 * 7, hidden)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, 1, 28, 28] -> logits [B, num_classes]."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)

    def fused_step(self, loss: Callable, work: LocalWork) -> CNNStep | None:
        """The hand-written step for plain SGD on cross-entropy, or None: the sequential engine then uses autograd."""
        options = work.momentum or work.weight_decay or work.prox_mu or work.micro_batch
        if loss is not F.cross_entropy or work.optimizer != "sgd" or options:
            return None
        return CNNStep(self, work.lr)

    def stacked_forward(self, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        """`forward` for S sites at once: weights [S, ...] by name, x [S, B, 1, 28, 28] -> [S, B, num_classes].

        Every layer is one batched matrix product over the sites, the convolutions on unfolded inputs.
        """
        images = x.movedim(2, -1)  # channels last, as [S, B, Y, X, C]
        for name in ("conv1", "conv2"):
            y = _stacked_convolution(images, weights[f"{name}.weight"], weights[f"{name}.bias"])
            y = F.relu(F.max_pool2d(y.flatten(0, 1).permute(0, 3, 1, 2), 2))
            images = y.permute(0, 2, 3, 1).unflatten(0, x.shape[:2])
        x = images.movedim(-1, 2).flatten(2)
        x = F.relu(stacked_linear(x, weights["fc1.weight"], weights["fc1.bias"]))
        return stacked_linear(x, weights["fc2.weight"], weights["fc2.bias"])


def stacked_linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[S, B, I], [S, O, I], [S, O] -> [S, B, O]."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))


def _stacked_convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[S, B, Y, X, I], [S, O, I, K, K], [S, O] -> [S, B, Y, X, O], same-padded."""
    kernel = weight.shape[-1]
    padded = F.pad(x, [0, 0, *[kernel // 2] * 4])
    patches = padded.unfold(2, kernel, 1).unfold(3, kernel, 1)  # [S, B, Y, X, I, K, K]
    y = stacked_linear(patches.flatten(4).flatten(1, 3), weight.flatten(2), bias)
    return y.unflatten(1, x.shape[1:4])
