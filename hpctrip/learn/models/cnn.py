"""The small convolutional classifier of the emnist workload, in the two sizes that the field uses.

Shapes: B batch, C channels, K kernel. Input [B, 1, 28, 28] -> conv, pool, relu [B, C1, 14, 14] -> conv, pool, relu
[B, C2, 7, 7] -> linear, relu [B, hidden] -> linear [B, num_classes]. Stacked: S sites, each with its own weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from hpctrip.learn.engines.steps import Step, channels_last
from hpctrip.learn.local_work import LocalWork

_max_pool_backward = torch.ops.aten.max_pool2d_with_indices_backward
_convolution_backward = torch.ops.aten.convolution_backward
_PART = 125  # images that evaluation takes at once: for more, malloc maps new memory each time


class CNN(nn.Module):
    """Two same-padded convolutions and two linear layers for square images, by default of 28x28 grey pixels.

    `CNN(3, (16, 32), 128)` is the light one (about 0.2 M parameters), `CNN(5, (32, 64), 512)` the one of LEAF (1.7 M).
    ReLU comes after max-pooling: both are monotone, so the result is the same and the ReLU touches a quarter as much.
    """

    def __init__(
        self,
        kernel: int,
        channels: tuple[int, int],
        hidden: int,
        num_classes: int = 62,
        in_channels: int = 1,
        side: int = 28,
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels[0], kernel, padding=kernel // 2)
        self.conv2 = nn.Conv2d(channels[0], channels[1], kernel, padding=kernel // 2)
        self.fc1 = nn.Linear(channels[1] * (side // 4) ** 2, hidden)
        self.has_step = (in_channels, side) == (1, 28)
        self.fc2 = nn.Linear(hidden, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, in_channels, side, side] -> logits [B, num_classes]. Without gradients on a CPU, in oneDNN's own layout
        and in parts of the batch that stay in the cache: half the time."""
        if torch.is_grad_enabled() or x.device.type != "cpu" or not torch.backends.mkldnn.is_available():
            x = self._features(x)
        else:
            x = torch.cat([self._features(part.to_mkldnn()).to_dense() for part in x.split(_PART)])
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)

    def _features(self, x: torch.Tensor) -> torch.Tensor:
        """[B, in_channels, side, side] -> [B, C2, side // 4, side // 4]."""
        x = F.max_pool2d(self.conv1(x), 2).relu_()
        return F.max_pool2d(self.conv2(x), 2).relu_()

    def fused_step(self, loss: Callable, work: LocalWork) -> CNNStep | None:
        """The hand-written step for plain SGD on cross-entropy, or None: the sequential engine then uses autograd."""
        options = work.momentum or work.weight_decay or work.prox_mu or work.micro_batch
        if loss is not F.cross_entropy or work.optimizer != "sgd" or options or not self.has_step:
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


class CNNStep(Step):
    """Plain SGD on the mean cross-entropy of a `CNN`, with the backward pass written out: faster than autograd on one
    CPU thread. Tested against autograd, the reference. Where the time is saved (B = 20, one thread):

    * The update is folded into the weight gradient's matrix product: W -= lr * dy^T x is one `addmm_`, and no gradient
      of the 1.6 million weights of fc1 is ever written or read (0.73 ms instead of 0.90 + 0.17).
    * Activations and weights stay channels-last (pooling 0.2 ms instead of 2.8), and the columns of fc1 are stored in
      that order, so that flattening copies nothing. With AVX-512 that holds for 5x5 too (a whole step of LEAF's CNN 8.6
      ms instead of 9.3 with a contiguous second convolution); with AVX2 that convolution would rather be contiguous.
    """

    def __init__(self, model: nn.Module, lr: float):
        self.lr = lr
        (c1, _, k, _), (c2, *_) = model.conv1.weight.shape, model.conv2.weight.shape
        self.padding = k // 2
        new = model.conv1.weight.new_empty
        self.conv1, self.bias1 = channels_last(new(c1, 1, k, k)), new(c1)
        self.conv2, self.bias2 = channels_last(new(c2, c1, k, k)), new(c2)
        self.fc1, self.bias3 = new(model.fc1.out_features, 7, 7, c2), new(model.fc1.out_features)
        self.fc2, self.bias4 = new(model.fc2.weight.shape), new(model.fc2.out_features)
        convolutions = [self.conv1, self.bias1, self.conv2, self.bias2]
        super().__init__([*convolutions, self.fc1.permute(0, 3, 1, 2), self.bias3, self.fc2, self.bias4])

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """[B, 1, 28, 28], [B] -> mean loss. Each layer is updated once the gradient of its input is computed."""
        fc1 = self.fc1.flatten(1)
        x1 = _images(inputs, len(labels), 28)
        y1 = F.conv2d(x1, self.conv1, self.bias1, padding=self.padding)
        x2, max1 = F.max_pool2d(y1, 2, return_indices=True)
        y2 = F.conv2d(x2.relu_(), self.conv2, self.bias2, padding=self.padding)
        x3, max2 = F.max_pool2d(y2, 2, return_indices=True)
        x3 = x3.relu_().permute(0, 2, 3, 1).flatten(1)
        x4 = torch.addmm(self.bias3, x3, fc1.t()).relu_()
        log_p = torch.addmm(self.bias4, x4, self.fc2.t()).log_softmax(1)
        loss = F.nll_loss(log_p, labels)

        dy = log_p.exp_().sub_(F.one_hot(labels, log_p.shape[1])).div_(len(labels))
        dx = _relu_backward(dy @ self.fc2, x4)
        self._descend(self.fc2, self.bias4, dy, x4)
        dy, dx = dx, _relu_backward(dx @ fc1, x3)
        self._descend(fc1, self.bias3, dy, x3)
        dy = _pool_backward(_images(dx, len(labels), 7), y2, max2)
        dx = self._descend_convolution(self.conv2, self.bias2, dy, x2, needs_dx=True)
        dy = _pool_backward(_relu_backward(dx, x2), y1, max1)
        self._descend_convolution(self.conv1, self.bias1, dy, x1, needs_dx=False)
        return loss

    def _descend(self, weight: torch.Tensor, bias: torch.Tensor, dy: torch.Tensor, x: torch.Tensor) -> None:
        """Update a linear layer y = x W^T + b, from dloss/dy."""
        weight.addmm_(dy.t(), x, alpha=-self.lr)
        bias.sub_(dy.sum(0), alpha=self.lr)

    def _descend_convolution(
        self, weight: torch.Tensor, bias: torch.Tensor, dy: torch.Tensor, x: torch.Tensor, needs_dx: bool
    ) -> torch.Tensor:
        """Update a convolution, from dloss/dy; returns dloss/dx where it is needed."""
        sizes, stride, padding, dilation = [len(bias)], [1, 1], [self.padding] * 2, [1, 1]
        dx, dw, db = _convolution_backward(
            dy, x, weight, sizes, stride, padding, dilation, False, [0, 0], 1, [needs_dx, True, True]
        )
        weight.sub_(dw, alpha=self.lr)
        bias.sub_(db, alpha=self.lr)
        return dx


def _images(rows: torch.Tensor, batch: int, side: int) -> torch.Tensor:
    """Elements in (image, y, x, channel) order, however cut -> [B, C, side, side], channels-last, without a copy."""
    return rows.view(batch, side, side, -1).permute(0, 3, 1, 2)


def _relu_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.threshold_backward(dy, y, 0)


def _pool_backward(dy: torch.Tensor, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Backward pass of F.max_pool2d(x, 2): the gradient goes to the first of equal maxima, as everywhere in torch."""
    return _max_pool_backward(dy, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
