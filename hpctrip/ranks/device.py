"""Selects the device on which a rank computes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import Ranks

if TYPE_CHECKING:
    import torch


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """The CPU for `cpu` and on machines without a GPU; else one of the machine's GPUs, assigned to its hosts
    round-robin.

    An aggregator beside other ranks always computes on the CPU, so that it takes no GPU time from a host.
    """
    import torch

    if name == "cpu" or not torch.cuda.is_available() or ranks.rank not in ranks.hosts:
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_host % torch.cuda.device_count())


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process sees, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (names or list(map(str, range(count))))[:count]


def gpu_identity(device: torch.device) -> str:
    """The UUID of a GPU, which identifies it even where every rank sees a single GPU numbered 0 (`--gpus-per-task`).
    Its index with torch before 2.5, which has no UUIDs; empty for a CPU."""
    if device.type == "cpu":
        return ""
    import torch

    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))


def hosts_kind(name: str, device: torch.device, ranks: Ranks) -> str:
    """The device type that all hosts have in common: "cuda", or "cpu" where a host has no GPU. A collective.

    Engine and blocks depend on it at every rank, including an aggregator that itself computes on the CPU. Raises
    InputError where `name` is "cuda" and a host has no GPU.
    """
    kinds = ranks.gather(device.type)

    def agree() -> str:
        without = [rank for rank in ranks.hosts if kinds[rank] != "cuda"]
        if name == "cuda" and without:
            problem = f"torch sees no CUDA device at rank {without[0]}"
            raise InputError('ranks.device = "cuda"', problem, 'use "auto" or "cpu"')
        return "cpu" if without else "cuda"

    return ranks.decide_on_root(agree)
