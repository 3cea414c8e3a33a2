"""KWT, the Keyword Transformer (Berg et al. 2021), whose smallest size KWT-1 is the model of the speech workload.

Shapes: B batch, T = 98 frames, C = 40 coefficients, D = 64 wide. Input [B, T, C] -> linear per frame ("time-domain
patches" of 40 x 1), a class token in front, learned positions added [B, T + 1, D] -> blocks of self-attention and MLP,
each added to its input and normalised afterwards (post-norm) -> linear of the class token [B, num_classes].

Parameters of KWT-1: 40 D + D (frames), D (token), 99 D (positions), 12 blocks of 3 D^2 (queries, keys and values,
without bias) + D^2 + D (projection) + 2 * 2 D (norms) + 2 * 256 D + 256 + D (MLP), D num_classes + num_classes (head):
606,528 below the head, as in the released code, and 608,803 with 35 words.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

_PART = 25  # clips that evaluation takes at once


class KWT(nn.Module):
    """`KWT(num_classes)` is KWT-1: 12 blocks, 64 wide, one head, MLP of 256. Deterministic: KWT trains without dropout.

    Weights are drawn from a normal distribution of deviation 0.02, cut at two deviations; biases start at 0.
    """

    def __init__(self, num_classes: int, depth: int = 12, width: int = 64, mlp: int = 256):
        super().__init__()
        self.frames = nn.Linear(40, width)
        self.token = nn.Parameter(torch.empty(width))
        self.positions = nn.Parameter(torch.empty(99, width))
        self.blocks = nn.ModuleList(Block(width, mlp) for _ in range(depth))
        self.head = nn.Linear(width, num_classes)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:
                nn.init.trunc_normal_(p, std=0.02, a=-0.04, b=0.04)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, C] -> logits [B, num_classes]. Without gradients on a CPU, in parts of the batch that stay in the
        cache: half the time."""
        if len(x) > _PART and not torch.is_grad_enabled() and x.device.type == "cpu":
            return torch.cat([self(part) for part in x.split(_PART)])
        x = self.frames(x)
        x = torch.cat([self.token.to(x.dtype).expand(len(x), 1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


class Block(nn.Module):
    """Self-attention of one head, then an MLP with GELU; [B, T + 1, D] -> the same."""

    def __init__(self, width: int, mlp: int):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.projection = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, mlp)
        self.down = nn.Linear(mlp, width)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend, add, normalise; transform, add, normalise."""
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        attention = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
        x = self.norm1(x + self.projection(attention @ v))
        return self.norm2(x + self.down(F.gelu(self.up(x))))
