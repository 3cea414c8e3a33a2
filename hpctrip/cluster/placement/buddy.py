"""Buddy allocation of GPUs in the smallest subtree that holds a job (after PowerFlow, arXiv 2304.06381, its abstract).

Within a node a block is an aligned run of 1, 2, 4, ... GPUs. Free GPUs are kept as a bit mask, so adjacent free blocks
join by themselves. A job takes one block for each binary digit of its number of GPUs, all in one node. A job larger
than a node takes whole nodes, if possible an aligned run within one rack, and a block for the rest. Nodes that are on
are preferred, then the smallest block that has to be split, then the fullest node.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Machine, Move, Parts, Placement

_NO_BLOCK = 2**31
"""Rank of a node without a suitable block."""


@PLACEMENTS.add
class Buddy(Placement):
    """Places jobs in buddy blocks of the smallest subtree, on powered nodes first, with bounded migrations."""

    kind = "buddy"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build a layout with all GPUs free; `seed` is not used."""
        return BuddyLayout(machine)


@lru_cache(maxsize=2**18)
def fit(mask: int, gpus: int) -> tuple[int, int] | None:
    """Fit a job of `gpus` GPUs into a node with this mask of free GPUs.

    Returns (mask of its GPUs, size of the block that is split for its largest part), or None if the free blocks are too
    small.
    """
    taken = split = 0
    for size in (1 << digit for digit in range(gpus.bit_length() - 1, -1, -1) if gpus >> digit & 1):
        block = _smallest_block(mask & ~taken, size)
        if block is None:
            return None
        offset, block_size = block
        taken |= ((1 << size) - 1) << offset
        split = split or block_size
    return taken, split


def _smallest_block(mask: int, size: int) -> tuple[int, int] | None:
    """(offset, size) of the smallest free block of at least this size, the first of equal ones; None: none."""
    block = size
    while block <= mask.bit_length():
        ones = (1 << block) - 1
        for offset in range(0, mask.bit_length(), block):
            # if its buddy is free too, this block is part of a larger one
            if mask >> offset & ones == ones and mask >> (offset ^ block) & ones != ones:
                return offset, block
        block *= 2
    return None


class BuddyLayout(Layout):
    """Layout of buddy blocks."""

    def __init__(self, machine: Machine):
        super().__init__(machine)
        self._ranks: dict[int, np.ndarray] = {}
        """{GPUs: [nodes] rank of each node for a block of that size; the lowest is the best}."""
        self._rack = np.arange(machine.num_nodes) // machine.nodes_per_rack

    def changed(self, node: int) -> None:
        """Update the ranks of a node."""
        for gpus, ranks in self._ranks.items():
            ranks[node] = self._rank_of(node, gpus)

    def find(self, gpus: int, job: int = 0, turn: int = 0, closed: Sequence[int] = ()) -> Parts | None:
        """Find whole nodes and a block for `gpus` GPUs, which is on no `closed` node. `job` and `turn` are not used."""
        num_nodes, rest = divmod(gpus, self.machine.gpus_per_node)
        nodes = self._whole_nodes(num_nodes)
        if nodes is None:
            return None
        parts = [(node, self.full) for node in nodes]
        if rest:
            part = self._block(rest, [*nodes, *closed])
            if part is None:
                return None
            parts.append(part)
        return sorted(parts)

    def rearrange(self, most: int) -> list[Move]:
        """Empty the nodes with the fewest GPUs in use, as long as their jobs fit on other used nodes."""
        moves: list[Move] = []
        for node in self._emptiest()[: most + 1]:
            moves += self._clear(node, most - len(moves))
        return moves

    def make_room(self, gpus: int, most: int) -> list[Move]:
        """Empty nodes, the least used first, until the job fits; otherwise undo all moves."""
        moves: list[Move] = []
        candidates = self._emptiest()[: most + 1] if self.free.sum() >= gpus else []
        for node in candidates:
            moves += self._clear(node, most - len(moves))
            if moves and self.find(gpus) is not None:
                return moves
        self._undo(moves)
        return []

    def _emptiest(self) -> list[int]:
        """Partly used nodes, those with the fewest GPUs in use first."""
        used = self.machine.gpus_per_node - self.free
        partly = np.flatnonzero((used > 0) & (self.free > 0))
        return partly[np.argsort(used[partly], kind="stable")].tolist()

    def _clear(self, node: int, most: int) -> list[Move]:
        """Move all jobs of a node, at most `most`, to other used nodes so that it can be switched off or taken whole.

        No job is moved, and the list is empty, if they do not fit or if one of them spans several nodes.
        """
        jobs = self.jobs_on[node]
        if not 0 < len(jobs) <= most or any(len(self.parts[job]) > 1 for job in jobs):
            return []
        moves: list[Move] = []
        sizes = {job: self.parts[job][0][1].bit_count() for job in jobs}
        for job, gpus in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
            parts = self.find(gpus, closed=[node])
            if parts is None or any(self.free_mask[there] == self.full for there, _ in parts):
                self._undo(moves)
                return []
            moves.append(Move(job, self.release(job)))
            self.take(job, parts)
        return moves

    def _undo(self, moves: list[Move]) -> None:
        for move in reversed(moves):
            self.release(move.job)
            self.take(move.job, move.before)

    def _block(self, gpus: int, excluded: list[int]) -> tuple[int, int] | None:
        """(node, mask) of a block of `gpus` GPUs, less than a node, on none of the `excluded` nodes; None: none."""
        if gpus not in self._ranks:
            nodes = range(self.machine.num_nodes)
            self._ranks[gpus] = np.array([self._rank_of(node, gpus) for node in nodes])
        ranks = self._ranks[gpus].copy()
        ranks[[*excluded]] = _NO_BLOCK
        node = int(ranks.argmin())
        return None if ranks[node] == _NO_BLOCK else (node, fit(self.free_mask[node], gpus)[0])

    def _rank_of(self, node: int, gpus: int) -> int:
        """Rank of a node for a block: nodes that are on first, then the smallest split, then the fullest node."""
        block = fit(self.free_mask[node], gpus)
        if block is None:
            return _NO_BLOCK
        return (int(not self.powered[node]) * 128 + block[1]) * 128 + int(self.free[node])

    def _whole_nodes(self, number: int) -> list[int] | None:
        """Choose empty nodes: of the rack with the fewest boots, then the fewest empty nodes, else of few racks."""
        if number == 0:
            return []
        empty = self.free == self.machine.gpus_per_node
        num_empty, num_warm = (
            np.bincount(self._rack[nodes], minlength=int(self._rack[-1]) + 1)
            for nodes in (empty, empty & self.powered)
        )
        if int(num_empty.sum()) < number:
            return None
        enough = np.flatnonzero(num_empty >= number)
        if len(enough):
            boots = np.maximum(number - num_warm[enough], 0)
            rack = int(enough[np.lexsort((num_empty[enough], boots))[0]])
            return self._within_rack(rack, number)
        chosen: list[int] = []
        for rack in np.argsort(-num_empty, kind="stable").tolist():
            chosen += self._within_rack(rack, min(number - len(chosen), int(num_empty[rack])))
            if len(chosen) == number:
                break
        return chosen

    def _within_rack(self, rack: int, number: int) -> list[int]:
        first, per_rack = rack * self.machine.nodes_per_rack, self.machine.nodes_per_rack
        empty = {
            node
            for node in range(first, min(first + per_rack, self.machine.num_nodes))
            if self.free_mask[node] == self.full
        }
        if number & (number - 1) == 0:
            starts = range(first, first + per_rack - number + 1, number)
            runs = [run for start in starts if empty.issuperset(run := range(start, start + number))]
            if runs:
                return list(min(runs, key=lambda run: (-int(self.powered[list(run)].sum()), run.start)))
        return sorted(empty, key=lambda node: (not self.powered[node], node))[:number]
