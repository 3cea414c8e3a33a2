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


def bind(model: nn.Module, flat: torch.Tensor, grad: torch.Tensor | None = None) -> None:
    """Make every trainable parameter (and its .grad) a view of the flat vectors: writing either writes both.

    One SGD step is then one fused update of `flat`, whatever the number of layers.
    """
    offset = 0
    for p in model.parameters():
        if not p.requires_grad:
            continue
        end = offset + p.numel()
        p.data = flat[offset:end].view(p.shape)
        if grad is not None:
            p.grad = grad[offset:end].view(p.shape)
        offset = end
    if offset != flat.numel():
        raise ValueError(f"the model has {offset} parameters, the vector {flat.numel()}")


def digest(flat: torch.Tensor) -> str:
    """16 hex digits of the BLAKE2 hash of the parameters' bytes: equal digests mean bit-identical models."""
    return hashlib.blake2b(flat.detach().cpu().contiguous().numpy().tobytes(), digest_size=8).hexdigest()
