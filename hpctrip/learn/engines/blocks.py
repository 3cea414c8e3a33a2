"""How many sites a block has: the unit of placement, and what the stacked engine trains at once. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockRule:
    """The size of a round's blocks, from the number of sites and what the scenario declares.

    Never from the ranks: batched kernels are not bit-identical across batch sizes, so blocks that anybody can repeat
    are what makes results independent of the ranks.
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
