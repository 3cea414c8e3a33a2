"""Interface of placements: a layout records the GPUs of each job and finds free GPUs for the next job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from hpctrip.cluster.machine import Machine
from hpctrip.config.component import Component, Registry

Parts = list[tuple[int, int]]
"""GPUs of a job: (node, mask of its GPUs there), by rising node. Bit i of a mask is GPU i of the node."""

PLACEMENTS = Registry("placement", default="buddy")


@dataclass(frozen=True)
class Move:
    """A migrated job and its previous GPUs."""

    job: int
    before: Parts


class Layout:
    """Assignment of the GPUs of a cluster to jobs. Subclasses choose the GPUs of the next job in `find`."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.full = (1 << machine.gpus_per_node) - 1
        """The mask of all GPUs of a node."""
        self.free_mask = [self.full] * machine.num_nodes
        self.free = np.full(machine.num_nodes, machine.gpus_per_node)
        """[nodes] number of free GPUs."""
        self.powered = np.zeros(machine.num_nodes, bool)
        """[nodes] whether a node is on or booting."""
        self.parts: dict[int, Parts] = {}
        """{job: its GPUs}."""
        self.jobs_on: list[set[int]] = [set() for _ in range(machine.num_nodes)]
        """[nodes] jobs with GPUs on a node."""
        self.closed = -1
        """Node from which `find` takes no GPUs while it is being emptied; -1: none."""

    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        """Find `gpus` free GPUs for a job that has been started `turn` times before; None if it cannot be placed."""
        raise NotImplementedError

    def changed(self, node: int) -> None:
        """Hook that is called after a node's free GPUs or its power state have changed."""

    def place(self, gpus: int, job: int, turn: int) -> bool:
        """Find GPUs for a job and assign them; returns whether that was possible."""
        parts = self.find(gpus, job, turn)
        if parts is None:
            return False
        self.take(job, parts)
        return True

    def take(self, job: int, parts: Parts) -> None:
        """Assign these GPUs to a job. Raises ValueError if one of them is not free."""
        for node, mask in parts:
            if mask & ~self.free_mask[node]:
                raise ValueError(f"GPUs {mask:b} of node {node} are not all free: {self.free_mask[node]:b}")
            self._set(node, self.free_mask[node] & ~mask)
            self.jobs_on[node].add(job)
        self.parts[job] = parts

    def release(self, job: int) -> Parts:
        """Free the GPUs of a job and return them."""
        parts = self.parts.pop(job)
        for node, mask in parts:
            self._set(node, self.free_mask[node] | mask)
            self.jobs_on[node].discard(job)
        return parts

    def power(self, node: int, on: bool) -> None:
        """Record that a node is on (or booting), or off."""
        self.powered[node] = on
        self.changed(node)

    def rearrange(self, most: int) -> list[Move]:
        """Move at most `most` jobs to empty nodes; the base class moves none."""
        return []

    def make_room(self, gpus: int, most: int) -> list[Move]:
        """Move at most `most` jobs so that a job of `gpus` GPUs can be placed; the base class moves none.

        No job is moved if that does not suffice.
        """
        return []

    @property
    def stranded(self) -> int:
        """Number of free GPUs in partly used nodes, a measure of fragmentation."""
        partly = self.free < self.machine.gpus_per_node
        return int(self.free[partly].sum())

    def _set(self, node: int, mask: int) -> None:
        self.free_mask[node] = mask
        self.free[node] = mask.bit_count()
        self.changed(node)


class Placement(Component):
    """Base class of placements: the input keys of a layout."""

    max_migrations: int = Field(4, ge=0, le=100_000)
    """Maximum number of running jobs that are moved at one decision, each at the cost of a restart."""

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build a layout of the cluster with all GPUs free."""
        raise NotImplementedError


def lowest(mask: int, number: int) -> int:
    """Mask of the `number` lowest GPUs of a mask."""
    taken = 0
    for _ in range(number):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def scattered(layout: Layout, nodes: np.ndarray, gpus: int) -> Parts | None:
    """The first `gpus` free GPUs of these nodes, in this order of nodes; None if there are too few."""
    counts = layout.free[nodes]
    before = np.cumsum(counts) - counts
    if before[-1] + counts[-1] < gpus:
        return None
    takes = np.clip(gpus - before, 0, counts)
    chosen = np.flatnonzero(takes)
    parts = [(int(nodes[i]), lowest(layout.free_mask[int(nodes[i])], int(takes[i]))) for i in chosen.tolist()]
    return sorted(parts)
