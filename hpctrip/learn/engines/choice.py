"""The input's table [engine]: which engine trains on a kind of device, and how many sites a block has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.config.component import Component
from hpctrip.learn.engines.base import Precision

if TYPE_CHECKING:
    import torch

    from hpctrip.learn.engines.steps import Engine


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
    """Training of a block of sites: engine, precision, and block size."""

    name: Literal["auto", "sequential", "stacked"] = "auto"
    """sequential: one site after another (a CPU's best). stacked: a block at once (GPUs). auto: by device."""
    precision: Precision = "float32"
    """Precision of matrix products and convolutions in training; tf32 and bfloat16 change results in about the third
    digit. tf32 has no effect on a CPU."""
    deterministic: bool = True
    """On GPUs, use only deterministic algorithms; an operation without one ends the run with its name. false: any
    algorithm. CPU algorithms are always deterministic."""
    sites_per_block: Literal["auto"] | Annotated[int, Field(ge=1, le=10**9)] = "auto"
    """Sites in one block, the unit of placement. auto: 1 for sequential; for stacked 32, or fewer with `lanes`."""
    lanes: int | None = Field(None, ge=1, le=1_000_000)
    """Number of hosts that the scenario is sized for, independent of the actual number: stacked blocks are small
    enough to give every host one. Absent: all blocks except the last are full. Changes the last bits, like
    `sites_per_block`."""

    def prepare(self, device: torch.device) -> None:
        """Set up PyTorch for this device, before anything is computed on it."""
        if device.type == "cuda" and self.deterministic:
            from hpctrip.learn.engines.steps import be_deterministic

            be_deterministic()

    def block_rule(self, engine: type[Engine]) -> BlockRule:
        """The blocks that this engine trains."""
        if self.sites_per_block == "auto":
            return BlockRule(engine.sites_per_block, self.lanes)
        return BlockRule(self.sites_per_block)


def engines() -> dict[str, type[Engine]]:
    """The engine classes by name."""
    from hpctrip.learn.engines.sequential import Sequential
    from hpctrip.learn.engines.stacked import Stacked

    return {engine.name: engine for engine in (Sequential, Stacked)}


def choose(name: str, device: torch.device | str, sequential_only: str = "") -> tuple[type[Engine], str]:
    """The engine class and why it was taken; "auto" takes the one that is faster on that kind of device.

    `sequential_only` is the task's reason, if any, why its model cannot be stacked. Raises InputError where "stacked"
    is asked for all the same.
    """
    if name == "stacked" and sequential_only:
        raise InputError('engine.name = "stacked"', sequential_only, 'use "sequential" or "auto"')
    if name != "auto":
        return engines()[name], "as asked for"
    if sequential_only:
        return engines()["sequential"], sequential_only
    if str(device).startswith("cpu"):
        return engines()["sequential"], "on a CPU one site's model stays in the cache"
    return engines()["stacked"], "on a GPU a single site's operations are bound by their launches"
