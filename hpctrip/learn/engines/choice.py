"""Which engine trains: the input's table [engine], and what it means on a kind of device."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field

from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name
from hpctrip.learn.engines.base import Engine
from hpctrip.learn.engines.blocks import BlockRule
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked
from hpctrip.learn.engines.tensors import Precision

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Sequential, Stacked)}


def _renamed(name: Any) -> Any:
    """Older inputs, also those stored in results files, call the sequential engine "loop"."""
    return "sequential" if name == "loop" else name


def _spelled(size: Any) -> Any:
    """What older results files hold where no size was given."""
    return "auto" if size is None else size


_Size = Annotated[int, Field(ge=1, le=10**9)]


class EngineChoice(Component):
    """How a block of sites is trained."""

    name: Annotated[Literal["auto", "sequential", "stacked"], BeforeValidator(_renamed)] = "auto"
    """sequential: one site after another (a CPU's best). stacked: a block at once (GPUs). auto: by device."""
    precision: Precision = "float32"
    """Of matrix products and convolutions in training; anything but float32 changes results, in the third digit or so.
    tf32 is a GPU's and does nothing on a CPU."""
    sites_per_block: Annotated[Literal["auto"] | _Size, BeforeValidator(_spelled)] = "auto"
    """Sites in one block, the unit of placement. auto: 1 for sequential; for stacked 32, or fewer with `lanes`."""
    lanes: int | None = Field(None, ge=1, le=1_000_000)
    """Hosts that the scenario is sized for, however many there are: stacked blocks are made small enough that a round's
    sites fill them. Absent: all blocks but the last are full. Changes the last bits, as `sites_per_block` does."""

    def block_rule(self, engine: type[Engine]) -> BlockRule:
        """The blocks that this engine trains."""
        if self.sites_per_block == "auto":
            return BlockRule(engine.sites_per_block, self.lanes)
        return BlockRule(self.sites_per_block)


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
