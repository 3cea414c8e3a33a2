"""Bringing a host back to where a checkpoint, or a model that a store keeps, left it."""

from __future__ import annotations

import numpy as np
import torch

from hpctrip.app.host import Host
from hpctrip.base.errors import InputError
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.trajectory import Kept

Model = Checkpoint | Kept
"""What holds a model, and all that is needed to train on."""


def restore(host: Host, model: Model | None, place: object) -> torch.Tensor:
    """Bring back a model that was found at `place`; returns its parameters [P]. A collective; `model` is None but at
    rank 0."""
    ranks = host.ranks
    params, slots = ranks.decide_on_root(lambda: fitting(host, model, place))
    host.slots.copy_(slots)
    if host.fixed_hosts is not None:
        kept = {site: torch.from_numpy(row) for site, row in model.kept.items()} if model else None
        rows = ranks.scatter_rows(kept, np.array(ranks.hosts)[host.fixed_hosts])
        host.memory.rows = {site: row.to(host.device) for site, row in rows.items()}
    return params.to(host.device)


def fitting(host: Host, model: Model | None, place: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Its parameters [P] and slots [num_slots, P]; InputError at `place` where the run's own have other shapes."""
    assert model is not None
    params, slots, kept = model.params, model.slots, model.kept
    way_out = "resume with the hpctrip that wrote it"
    if params.shape != host.initial_params.shape or slots.shape != tuple(host.slots.shape):
        raise InputError(
            str(place),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(host.initial_params.shape)} and {tuple(host.slots.shape)}",
            way_out,
        )
    for site, row in kept.items():
        if not 0 <= site < host.num_sites or row.shape != (host.memory.length,):
            raise InputError(
                str(place),
                f"holds {row.shape} numbers kept by site {site}; a site keeps {host.memory.length}, sites are 0 to "
                f"{host.num_sites - 1}",
                way_out,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)
