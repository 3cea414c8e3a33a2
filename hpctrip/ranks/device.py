"""Which device a rank computes on."""

from __future__ import annotations

import os

import torch

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import Ranks


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """The CPU for `cpu`, and where there is no GPU; else the node's GPUs dealt out over its hosts.

    The aggregator among other ranks always computes on the CPU: its GPU work would be a host's loss.
    """
    if name == "cpu" or not torch.cuda.is_available() or ranks.rank not in ranks.hosts:
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_host % torch.cuda.device_count())


def visible_gpus() -> list[str]:
    """The names, for CUDA_VISIBLE_DEVICES, of the GPUs that this process sees."""
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return (names or list(map(str, range(count))))[:count]


def gpu_identity(device: torch.device) -> str:
    """Identifies a GPU among those of its machine, also where each rank sees a single one, numbered 0
    (`--gpus-per-task`): its UUID. torch before 2.5 knows none, its number stands in. Empty for a CPU."""
    if device.type == "cpu":
        return ""
    return str(getattr(torch.cuda.get_device_properties(device), "uuid", device.index))


def hosts_kind(name: str, device: torch.device, ranks: Ranks) -> str:
    """The kind of device that all hosts have, at every rank: "cuda", or "cpu" where one has no GPU. A collective.

    Engine and blocks depend on it, also at the aggregator, whose own device is always the CPU. Raises InputError
    where `name` is "cuda" and a host has none.
    """
    kinds = ranks.gather(device.type)

    def agree() -> str:
        without = [rank for rank in ranks.hosts if kinds[rank] != "cuda"]
        if name == "cuda" and without:
            problem = f"torch sees no CUDA device at rank {without[0]}"
            raise InputError('ranks.device = "cuda"', problem, 'use "auto" or "cpu"')
        return "cpu" if without else "cuda"

    return ranks.decide_on_root(agree)
