"""What decides the last bits of training on a machine: kernels are chosen by torch's build, the processor and the GPU,
and each rounds in its own order."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import torch

from hpctrip.base.io import digest

_PACKAGES = ("torch", "numpy", "transformers", "peft")
"""Those whose code is part of a training step, where they are installed."""


def arithmetic(device: torch.device) -> str:
    """A digest; training on devices for which it is equal gives equal bits."""
    facts = [f"{name} {_version(name)}" for name in _PACKAGES]
    facts += [torch.__config__.show(), platform.machine(), _processor()]
    if device.type == "cuda":
        facts += [torch.cuda.get_device_name(device), f"cuDNN {torch.backends.cudnn.version()}"]
    return digest("\n".join(facts).encode())


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _processor() -> str:
    """Its model, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
