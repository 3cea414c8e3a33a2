"""Buddy blocks, packed into the smallest subtree that holds a job; PowerFlow's way, as far as its abstract tells.

Within a node a block is an aligned run of 1, 2, 4, ... GPUs; a mask of free GPUs says which are free, so that buddies
join by themselves. A job takes a block for each binary digit of its number of GPUs, all in one node. A job larger than
a node takes whole nodes, an aligned run of one rack where there is one, and a block for the rest. Nodes that are on
come first, then the smallest block that must be split, then the fullest node.
"""

from __future__ import annotations

import heapq
from functools import lru_cache

import numpy as np

from hpctrip.cluster.machine import Machine
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Move, Parts, Placement
from hpctrip.cluster.placement.migrate import clear, emptiest


@PLACEMENTS.add
class Buddy(Placement):
    """Buddy blocks in the smallest subtree, nodes that are on first, with bounded migrations."""

    kind = "buddy"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """All nodes free."""
        return BuddyLayout(machine)


@lru_cache(maxsize=2**18)
def fit(mask: int, gpus: int) -> tuple[int, int] | None:
    """(GPUs to take, size of the block that is split for the largest part) within a node with these free GPUs; None
    where its free blocks are too small."""
    taken = split = 0
    for size in (1 << digit for digit in range(gpus.bit_length() - 1, -1, -1) if gpus >> digit & 1):
        found = _smallest_block(mask & ~taken, size)
        if found is None:
            return None
        offset, block = found
        taken |= ((1 << size) - 1) << offset
        split = split or block
    return taken, split


def _smallest_block(mask: int, size: int) -> tuple[int, int] | None:
    """(offset, size) of the smallest free block of at least this size; of equal ones the first."""
    block = size
    while block <= mask.bit_length():
        ones = (1 << block) - 1
        for offset in range(0, mask.bit_length(), block):
            # with a free buddy it would be part of a larger block
            if mask >> offset & ones == ones and mask >> (offset ^ block) & ones != ones:
                return offset, block
        block *= 2
    return None


class BuddyLayout(Layout):
    """Who has which blocks. Finding one costs O(log nodes)."""

    def __init__(self, machine: Machine):
        super().__init__(machine)
        self._stamp = [0] * machine.num_nodes
        self._heaps: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self._rack = np.arange(machine.num_nodes) // machine.nodes_per_rack
        self._empty: list[set[int]] = [set() for _ in range(int(self._rack[-1]) + 1)]
        self._num_empty = np.zeros(len(self._empty), int)
        self._num_warm = np.zeros(len(self._empty), int)
        self._warm = np.zeros(machine.num_nodes, bool)
        for node in range(machine.num_nodes):
            self.changed(node)

    def changed(self, node: int) -> None:
        """Renew what is known of a node."""
        self._stamp[node] += 1
        for gpus, heap in self._heaps.items():
            self._push(heap, gpus, node)
        rack, empty = self._rack[node], self.free_mask[node] == self.full
        if empty != (node in self._empty[rack]):
            (self._empty[rack].add if empty else self._empty[rack].discard)(node)
            self._num_empty[rack] += 1 if empty else -1
        warm = empty and bool(self.powered[node])
        self._num_warm[rack] += int(warm) - int(self._warm[node])
        self._warm[node] = warm

    def find(self, gpus: int, job: int = 0, turn: int = 0) -> Parts | None:
        """Blocks for so many GPUs."""
        num_nodes, rest = divmod(gpus, self.machine.gpus_per_node)
        nodes = self._whole_nodes(num_nodes)
        if nodes is None:
            return None
        parts = [(node, self.full) for node in nodes]
        if rest:
            part = self._block(rest, set(nodes))
            if part is None:
                return None
            parts.append(part)
        return sorted(parts)

    def rearrange(self, most: int) -> list[Move]:
        """Empty the nodes with the fewest GPUs in use, as long as their jobs fit on other nodes that are in use."""
        moves: list[Move] = []
        for node in emptiest(self)[: most + 1]:
            moves += clear(self, node, most - len(moves))
        return moves

    def make_room(self, gpus: int, most: int) -> list[Move]:
        """Empty nodes, the least used first, until a block is found."""
        moves: list[Move] = []
        candidates = emptiest(self)[: most + 1] if self.free.sum() >= gpus else []
        for node in candidates:
            moves += clear(self, node, most - len(moves))
            if moves and self.find(gpus) is not None:
                return moves
        for move in reversed(moves):
            self.release(move.job)
            self.take(move.job, move.before)
        return []

    def _block(self, gpus: int, but: set[int]) -> tuple[int, int] | None:
        """(node, mask) of a part of a node, on none of the nodes `but`."""
        if gpus not in self._heaps:
            self._heaps[gpus] = []
            for node in range(self.machine.num_nodes):
                self._push(self._heaps[gpus], gpus, node)
        heap, passed, found = self._heaps[gpus], [], None
        while heap and found is None:
            *_, node, stamp = heap[0]
            if stamp != self._stamp[node]:
                heapq.heappop(heap)  # the node has changed since
            elif node in but or node == self.closed:
                passed.append(heapq.heappop(heap))
            else:
                found = (node, fit(self.free_mask[node], gpus)[0])
        for entry in passed:
            heapq.heappush(heap, entry)
        return found

    def _push(self, heap: list[tuple[int, int, int, int, int]], gpus: int, node: int) -> None:
        found = fit(self.free_mask[node], gpus)
        if found is not None:
            off = 0 if self.powered[node] else 1
            heapq.heappush(heap, (off, found[1], int(self.free[node]), node, self._stamp[node]))

    def _whole_nodes(self, number: int) -> list[int] | None:
        """Empty nodes: of the rack that needs the fewest boots and has the fewest to spare, else of few racks."""
        if number == 0:
            return []
        if int(self._num_empty.sum()) < number:
            return None
        enough = np.flatnonzero(self._num_empty >= number)
        if len(enough):
            boots = np.maximum(number - self._num_warm[enough], 0)
            rack = int(enough[np.lexsort((self._num_empty[enough], boots))[0]])
            return self._within_rack(rack, number)
        chosen: list[int] = []
        for rack in np.argsort(-self._num_empty, kind="stable").tolist():
            chosen += self._within_rack(rack, min(number - len(chosen), int(self._num_empty[rack])))
            if len(chosen) == number:
                break
        return chosen

    def _within_rack(self, rack: int, number: int) -> list[int]:
        empty = self._empty[rack]
        if number & (number - 1) == 0:
            first = rack * self.machine.nodes_per_rack
            starts = range(first, first + self.machine.nodes_per_rack - number + 1, number)
            runs = [
                range(start, start + number)
                for start in starts
                if empty.issuperset(range(start, start + number))
            ]
            if runs:
                return list(
                    min(runs, key=lambda run: (number - int(self.powered[list(run)].sum()), run.start))
                )
        return sorted(empty, key=lambda node: (not self.powered[node], node))[:number]
