"""Engines: how the sites of a block are trained. `sequential` one after another, `stacked` all at once."""

from __future__ import annotations

import torch

from hpctrip.base.component import unknown_name
from hpctrip.base.errors import InputError
from hpctrip.learn.engines.base import Engine
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Sequential, Stacked)}


def choose(name: str, device: torch.device | str, sequential_only: str = "") -> tuple[type[Engine], str]:
    """The engine class and why it was taken; "auto" takes the one that is faster on that kind of device.

    `sequential_only` is the task's reason, if any, why its model cannot be stacked. Raises InputError where "stacked"
    is asked for all the same, ValueError that names the engines where `name` is none of them.
    """
    if name == "auto":
        if sequential_only:
            return Sequential, sequential_only
        if torch.device(device).type == "cpu":
            return Sequential, "on a CPU one site's model stays in the cache"
        return Stacked, "on a GPU a single site's operations are bound by their launches"
    if name not in ENGINES:
        raise ValueError(f"unknown engine {name!r}; {unknown_name(name, ['auto', *ENGINES])}")
    if name == "stacked" and sequential_only:
        raise InputError('engine.name = "stacked"', sequential_only, 'use "sequential" or "auto"')
    return ENGINES[name], "as asked for"
