"""The contract of a placement: a layout knows who has which GPUs, and finds some for the next job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from hpctrip.cluster.machine import Machine
from hpctrip.config.component import Component, Registry

Parts = list[tuple[int, int]]
"""What a job has: (node, mask of its GPUs there), nodes rising. Bit i of a mask is GPU i of the node."""

PLACEMENTS = Registry("placement", default="buddy")


@dataclass(frozen=True)
class Move:
    """A job that was moved, and how it lay before."""

    job: int
    before: Parts


class Layout:
    """The GPUs of a cluster and the jobs on them. Subclasses say where the next job goes."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.full = (1 << machine.gpus_per_node) - 1
        """The mask of all GPUs of a node."""
        self.free_mask = [self.full] * machine.num_nodes
        self.free = np.full(machine.num_nodes, machine.gpus_per_node)
        """[nodes] free GPUs."""
        self.powered = np.zeros(machine.num_nodes, bool)
        """[nodes] on or booting."""
        self.parts: dict[int, Parts] = {}
        """{job: what it has}."""
        self.jobs_on: list[set[int]] = [set() for _ in range(machine.num_nodes)]
        self.closed = -1
        """A node on which nothing is to be found for now; -1: none."""

    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        """Free GPUs for a job, which starts for the `turn`-th time; None where it cannot be placed."""
        raise NotImplementedError

    def changed(self, node: int) -> None:
        """Called after a node's free GPUs or its power have changed."""

    def place(self, gpus: int, job: int, turn: int) -> bool:
        """Give a job its GPUs; says whether that was possible."""
        parts = self.find(gpus, job, turn)
        if parts is None:
            return False
        self.take(job, parts)
        return True

    def take(self, job: int, parts: Parts) -> None:
        """Give a job these GPUs, which are free."""
        for node, mask in parts:
            if mask & ~self.free_mask[node]:
                raise ValueError(f"GPUs {mask:b} of node {node} are not all free: {self.free_mask[node]:b}")
            self._set(node, self.free_mask[node] & ~mask)
            self.jobs_on[node].add(job)
        self.parts[job] = parts

    def release(self, job: int) -> Parts:
        """Take a job's GPUs back; returns what it had."""
        parts = self.parts.pop(job)
        for node, mask in parts:
            self._set(node, self.free_mask[node] | mask)
            self.jobs_on[node].discard(job)
        return parts

    def power(self, node: int, on: bool) -> None:
        """Note that a node is on (or booting), or off."""
        self.powered[node] = on
        self.changed(node)

    def rearrange(self, most: int) -> list[Move]:
        """Move at most so many jobs so that nodes become empty; only some layouts do."""
        return []

    def make_room(self, gpus: int, most: int) -> list[Move]:
        """Move at most so many jobs so that one of so many GPUs can be placed; only some layouts do. Nothing is moved
        where that does not suffice."""
        return []

    @property
    def stranded(self) -> int:
        """Free GPUs in nodes that are partly used: what fragmentation leaves."""
        partly = self.free < self.machine.gpus_per_node
        return int(self.free[partly].sum())

    def _set(self, node: int, mask: int) -> None:
        self.free_mask[node] = mask
        self.free[node] = mask.bit_count()
        self.changed(node)


class Placement(Component):
    """Base of all placements."""

    max_migrations: int = Field(4, ge=0, le=100_000)
    """Running jobs that may be moved at one decision, each at the cost of a restart."""

    def layout(self, machine: Machine, seed: int) -> Layout:
        """An empty layout of the cluster."""
        raise NotImplementedError


def lowest(mask: int, number: int) -> int:
    """The `number` lowest GPUs of a mask."""
    taken = 0
    for _ in range(number):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def scattered(layout: Layout, nodes: np.ndarray, gpus: int) -> Parts | None:
    """The first GPUs that are free on these nodes, in their order; None where there are too few."""
    counts = layout.free[nodes]
    before = np.cumsum(counts) - counts
    if before[-1] + counts[-1] < gpus:
        return None
    takes = np.clip(gpus - before, 0, counts)
    chosen = np.flatnonzero(takes)
    parts = [(int(nodes[i]), lowest(layout.free_mask[int(nodes[i])], int(takes[i]))) for i in chosen.tolist()]
    return sorted(parts)
