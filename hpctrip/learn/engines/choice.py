"""The input's table [engine]: which engine trains on a kind of device, and how many sites a block has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field

from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name
from hpctrip.config.component import Component
from hpctrip.learn.engines.base import Engine, Precision
from hpctrip.learn.engines.sequential import Sequential
from hpctrip.learn.engines.stacked import Stacked

ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (Sequential, Stacked)}


def _renamed(name: Any) -> Any:
    """Older inputs, also those stored in results files, call the sequential engine "loop"."""
    return "sequential" if name == "loop" else name


def _spelled(size: Any) -> Any:
    """Older results files hold None where the input set no size."""
    return "auto" if size is None else size


_Size = Annotated[int, Field(ge=1, le=10**9)]


@dataclass(frozen=True)
class BlockRule:
    """Size of a round's blocks, from the number of sites and the keys of [engine]; blocks are the unit of placement.

    It never depends on the number of ranks: batched kernels are not bit-identical across batch sizes, so only blocks
    that are the same everywhere make results independent of the ranks.
    """

    most: int
    """Sites in the largest block."""
    lanes: int | None = None
    """Hosts that the blocks of a round are to fill; None: every block is as large as may be."""

    def size(self, num_sites: int) -> int:
        """Sites in one block where `num_sites` are to be trained, from 1 to `most`.

        With lanes the blocks are as large as they can be in as few turns of all lanes as `most` allows.
        """
        if self.lanes is None:
            return self.most
        turns = -(-max(1, num_sites) // (self.lanes * self.most))
        return max(1, -(-num_sites // (self.lanes * turns)))

    def __str__(self) -> str:
        if self.most == 1:
            return "blocks of 1 site"
        if self.lanes is None:
            return f"blocks of {self.most} sites"
        return f"blocks of at most {self.most} sites, to fill {self.lanes} lanes"


class EngineChoice(Component):
    """Training of a block of sites: the engine, its precision, and the size of a block."""

    name: Annotated[Literal["auto", "sequential", "stacked"], BeforeValidator(_renamed)] = "auto"
    """sequential: one site after another (a CPU's best). stacked: a block at once (GPUs). auto: by device."""
    precision: Precision = "float32"
    """Precision of matrix products and convolutions in training; anything but float32 changes results, in the third
    digit or so. tf32 does nothing on a CPU."""
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
