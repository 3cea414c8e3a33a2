"""A model as one flat float32 vector: what travels, what is averaged, what is checkpointed."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def num_params(model: nn.Module) -> int:
    """Number of trainable scalars."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def flatten(model: nn.Module) -> torch.Tensor:
    """[num_params] float32: the trainable parameters, concatenated in the order of `model.parameters()`."""
    return torch.cat([p.detach().reshape(-1).float() for p in model.parameters() if p.requires_grad])


def digest(flat: torch.Tensor) -> str:
    """16 hex digits of the BLAKE2 hash of the parameters' bytes: equal digests mean bit-identical models."""
    return hashlib.blake2b(flat.detach().cpu().contiguous().numpy().tobytes(), digest_size=8).hexdigest()


def layout(model: nn.Module) -> list[str]:
    """What the flat vector is made of, in its order: "name 32x1x5x5" for each trainable parameter ("name" a scalar)."""
    return [
        " ".join([name, "x".join(map(str, p.shape))]).rstrip()
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
