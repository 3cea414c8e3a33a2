"""Bringing a host back to where a checkpoint left it."""

from __future__ import annotations

import numpy as np
import torch

from hpctrip.app.host import Host
from hpctrip.app.resume import Start
from hpctrip.base.errors import InputError


def restore(host: Host, start: Start | None) -> torch.Tensor:
    """Bring back what the checkpoint holds besides the state; returns the global model [P]. A collective; `start` is
    None but at rank 0."""
    ranks = host.ranks
    params, slots = ranks.lead(lambda: _fitting(host, start))
    host.slots.copy_(slots)
    if host.fixed_hosts is not None:
        kept = {site: torch.from_numpy(row) for site, row in start.checkpoint.kept.items()} if start else None
        rows = ranks.scatter_rows(kept, np.array(ranks.hosts)[host.fixed_hosts])
        host.memory.rows = {site: row.to(host.device) for site, row in rows.items()}
    return params.to(host.device)


def _fitting(host: Host, start: Start) -> tuple[torch.Tensor, torch.Tensor]:
    """The checkpoint's parameters [P] and slots [num_slots, P]; InputError where the model has other shapes."""
    assert start.checkpoint is not None
    params, slots, kept = start.checkpoint.params, start.checkpoint.slots, start.checkpoint.kept
    way_out = "resume with the hpctrip that wrote it"
    if params.shape != host.initial_params.shape or slots.shape != tuple(host.slots.shape):
        raise InputError(
            str(start.source),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(host.initial_params.shape)} and {tuple(host.slots.shape)}",
            way_out,
        )
    for site, row in kept.items():
        if not 0 <= site < host.num_sites or row.shape != (host.memory.length,):
            raise InputError(
                str(start.source),
                f"holds {row.shape} numbers kept by site {site}; a site keeps {host.memory.length}, sites are 0 to "
                f"{host.num_sites - 1}",
                way_out,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)
