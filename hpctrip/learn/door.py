"""Checks the tensors that a component hands over, as `hpctrip.base.door` does arrays.

What is asked in every round is only looked at from outside (`parameters`). The numbers are looked at once, when a
component is tried before the first round (`finite`), and from then on where somebody computes their magnitude anyway.
"""

from __future__ import annotations

import torch

from hpctrip.base.errors import InputError


def parameters(found: object, like: torch.Tensor, place: str, what: str) -> torch.Tensor:
    """`found` as it is: one float32 for every parameter, on the device of `like` [P]. Only that is looked at, not the
    numbers, so it costs nothing. InputError at `place` (the component's input key) where it is something else."""
    bound = f"it must be a float32 tensor [{len(like)}] on {like.device}"
    if not isinstance(found, torch.Tensor):
        raise InputError(place, f"gave a {type(found).__name__} as {what}", bound)
    if found.dtype != torch.float32 or found.shape != like.shape or found.device != like.device:
        dtype = str(found.dtype).removeprefix("torch.")
        raise InputError(place, f"gave {what} as {dtype} {list(found.shape)} on {found.device}", bound)
    return found


def finite(found: torch.Tensor, place: str, what: str) -> torch.Tensor:
    """`found` as it is, without NaN and infinities."""
    if not torch.isfinite(found).all():
        at = int((~torch.isfinite(found)).flatten().nonzero()[0])
        raise InputError(place, f"gave {what} with [{at}] = {found.flatten()[at]:g}", "it must be finite")
    return found
