"""A model as one flat float32 vector: what travels, what is averaged, what is checkpointed. It holds the trainable
parameters, then the buffers that `state_dict` holds, such as the running means of BatchNorm.

Also the checks of such vectors, and a digest of what their bits depend on beside the input.
"""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hpctrip.base import io
from hpctrip.base.errors import InputError
from hpctrip.base.validate import instance

if TYPE_CHECKING:
    import torch
    from torch import nn

_PACKAGES = ("torch", "numpy", "transformers", "peft")
"""Packages whose code is part of a training step, where they are installed."""


def num_params(model: nn.Module) -> int:
    """P: number of trainable scalars."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and buffers by name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that `state_dict` holds by name, those of integers last."""
    stored = model.state_dict(keep_vars=True).keys()
    persistent = [(name, tensor) for name, tensor in model.named_buffers() if name in stored]
    return dict(sorted(persistent, key=lambda item: not item[1].is_floating_point()))


def entries(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of the flat vector by name, in its order: trainable parameters, then `buffers`."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad} | buffers(model)


def constants(model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a model that do not travel, by name: frozen parameters, and the buffers that `state_dict` does not
    hold."""
    moving = entries(model)
    return {name: tensor for name, tensor in named_tensors(model).items() if name not in moving}


def num_integers(model: nn.Module) -> int:
    """Number of entries at the end of the flat vector that stand for integers (exact up to 2^24)."""
    return sum(b.numel() for b in buffers(model).values() if not b.is_floating_point())


def flatten(model: nn.Module) -> torch.Tensor:
    """The flat vector, float32 [num_params + number of entries of the buffers]."""
    import torch

    return torch.cat([tensor.detach().reshape(-1).float() for tensor in entries(model).values()])


def pieces(flat: torch.Tensor) -> list[slice]:
    """A long vector as slices for work on each entry alone: few enough entries that a processor's cache holds what is
    computed from them, more on a GPU. New memory for a whole large vector costs more than the arithmetic on it."""
    size = 2**16 if flat.device.type == "cpu" else 2**22
    return [slice(first, min(first + size, len(flat))) for first in range(0, len(flat), size)]


def norm(x: torch.Tensor, start: torch.Tensor | None = None) -> torch.Tensor:
    """2-norm of a float32 vector, or of its difference from `start`; a scalar tensor on its device. A long vector's is
    that of its parts' norms: torch sums float32 in float32, and a norm of 100 million entries was 0.6 % too small."""
    import torch

    parts = x.split(2**22)
    if start is not None:
        difference = torch.empty_like(parts[0])
        pairs = zip(parts, start.split(2**22), strict=True)
        parts = (torch.sub(a, b, out=difference[: len(a)]) for a, b in pairs)
    norms = [torch.linalg.vector_norm(part) for part in parts]
    return norms[0] if len(norms) == 1 else torch.linalg.vector_norm(torch.stack(norms).double())


def cosine(x: torch.Tensor, y: torch.Tensor) -> float:
    """Cosine of the angle between two vectors; 0 if one of them is zero."""
    import torch

    lengths = float(torch.linalg.vector_norm(x)) * float(torch.linalg.vector_norm(y))
    return float(x @ y) / lengths if lengths > 0 else 0.0


def digest_of_constants(model: nn.Module) -> str:
    """32 hex digits of the names, types and bytes of `constants`; empty where there are none."""
    parts = sorted(constants(model).items())
    return (
        io.digest("".join(f"{name} {t.dtype} {digest_of(t)}\n" for name, t in parts).encode())
        if parts
        else ""
    )


def digest_of(tensor: torch.Tensor) -> str:
    """32 hex digits of the BLAKE2 hash of a tensor's bytes, of any type."""
    import torch

    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return io.digest(data.numpy().data)


def digest(flat: torch.Tensor) -> str:
    """16 hex digits of the BLAKE2 hash of the parameters' bytes: equal digests mean bit-identical models."""
    return hashlib.blake2b(flat.detach().cpu().contiguous().numpy().data, digest_size=8).hexdigest()


def layout(model: nn.Module) -> list[str]:
    """Names and shapes in the flat vector's order: "name 32x1x5x5" for each tensor ("name" for a scalar)."""
    return [f"{name} {'x'.join(map(str, tensor.shape))}".rstrip() for name, tensor in entries(model).items()]


def tied(model: nn.Module) -> dict[str, str]:
    """{further name: name among `entries`} of tensors that `state_dict` holds under several names, as tied weights."""
    first = {id(tensor): name for name, tensor in entries(model).items()}
    named = {name: first.get(id(tensor), name) for name, tensor in model.state_dict(keep_vars=True).items()}
    return {name: other for name, other in named.items() if name != other}


def check_params(value: object, like: torch.Tensor, place: str, what: str) -> torch.Tensor:
    """`value`, a float32 vector [P] on the device of `like` [P]. Raises InputError at `place`, the input key of the
    component that returned it, where it is something else.

    The numbers are not read, so the check costs nothing in the rounds: `check_finite` reads them once, before the first
    round, and later a model that is not finite shows in the norm of its update.
    """
    import torch

    instance(value, torch.Tensor, place, what)
    if value.dtype != torch.float32 or value.shape != like.shape or value.device != like.device:
        dtype = str(value.dtype).removeprefix("torch.")
        raise InputError(
            place,
            f"gave {what} as {dtype} {list(value.shape)} on {value.device}",
            f"it must be a float32 tensor [{len(like)}] on {like.device}",
        )
    return value


def check_finite(value: torch.Tensor, place: str, what: str) -> None:
    """Raises InputError at `place` where an entry of `value` [P] is NaN or infinite."""
    wrong = ~value.isfinite()
    if wrong.any():
        at = int(wrong.nonzero()[0])
        raise InputError(place, f"gave {what} with [{at}] = {value[at]:g}", "it must be finite")


def arithmetic(device: torch.device) -> str:
    """Digest of what decides the last bits of training on a device of this machine: versions, processor, GPU.

    Equal digests mean equal bits: kernels are chosen by torch's build and the hardware, and each rounds in its own
    order.
    """
    import torch

    facts = [f"{name} {_version(name)}" for name in _PACKAGES]
    facts += [torch.__config__.show(), platform.machine(), _processor()]
    if device.type == "cuda":
        facts += [torch.cuda.get_device_name(device), f"cuDNN {torch.backends.cudnn.version()}"]
    return io.digest("\n".join(facts).encode())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    """The processor's model name, where the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
