"""Which device a rank computes on."""

from __future__ import annotations

import torch

from hpctrip.base.errors import InputError
from hpctrip.ranks.base import Ranks


def choose_device(name: str, ranks: Ranks) -> torch.device:
    """`cpu`, `cuda` (the node's GPUs dealt out over its hosts) or `auto` (cuda where there is one).

    The aggregator among other ranks always computes on the CPU: its GPU work would be a host's loss.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError('ranks.device = "cuda"', "torch sees no CUDA device", 'use "auto" or "cpu"')
    if name == "cpu" or not torch.cuda.is_available() or ranks.rank not in ranks.hosts:
        return torch.device("cpu")
    return torch.device("cuda", ranks.local_host % torch.cuda.device_count())
