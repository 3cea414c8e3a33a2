"""The hardware of the cluster, the interface of placements, and two simple placements for comparison.

A layout records the GPUs of each job and finds free GPUs for the next job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
from hpctrip.base.units import Seconds, Watts
from hpctrip.config.component import Component, Registry

MOST_GPUS = 1_000_000


class Machine(Component):
    """Equal nodes of equal GPUs. A node that is on draws `host_w`, and each free GPU in it draws its idle power."""

    num_nodes: int = Field(16, ge=1, le=100_000)
    """Number of nodes."""
    gpus_per_node: int = Field(8, ge=1, le=64)
    """Number of GPUs of a node."""
    nodes_per_rack: int = Field(16, ge=1, le=100_000)
    """Number of nodes of a rack. A job of several nodes is placed within one rack if possible."""
    host_w: Watts = Field(600.0, ge=0)
    """Power of a node that is on or booting, without its GPUs."""
    off_after_s: Annotated[Seconds, Field(ge=0, le=1e9)] | Literal["never"] = 300.0
    """Time after which a node without a job is switched off, or "never". [budget] comes first: nodes without a job are
    switched off at once, hot spares too, before a job is slowed or paused."""
    boot_s: Seconds = Field(120.0, ge=0, le=1e6)
    """Time from switching a node on until it can run a job."""
    hot_spares: int = Field(0, ge=0, le=100_000)
    """Number of nodes without a job that stay on."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        return self.product_at_most(MOST_GPUS, "num_nodes", "gpus_per_node")

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return self.num_nodes * self.gpus_per_node


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

    def are_free(self, parts: Parts) -> bool:
        """Whether no job has one of these GPUs."""
        return all(not mask & ~self.free_mask[node] for node, mask in parts)

    def take(self, job: int, parts: Parts) -> None:
        """Assign these GPUs to a job. Raises ValueError if one of them is not free."""
        for node, mask in parts:
            if not self.are_free([(node, mask)]):
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


@PLACEMENTS.add
class FirstFit(Placement):
    """Places a job on the first node that holds it whole, else on the first free GPUs of any nodes; no migrations."""

    kind = "first-fit"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build an empty layout that searches nodes by number; `seed` is not used."""
        return _Scattered(machine, lambda job, turn: np.arange(machine.num_nodes), prefers_one_node=True)


@PLACEMENTS.add
class RandomPlacement(Placement):
    """Places a job on free GPUs of nodes in random order, whether on or off; no migrations."""

    kind = "random"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build an empty layout that draws the order of nodes from the stream (seed, "placement", job, turn)."""

        def order(job: int, turn: int) -> np.ndarray:
            return stream(seed, "placement", job, turn).permutation(machine.num_nodes)

        return _Scattered(machine, order)


class _Scattered(Layout):
    """Gives a job the first free GPUs in an order of the nodes."""

    def __init__(
        self, machine: Machine, order: Callable[[int, int], np.ndarray], prefers_one_node: bool = False
    ):
        super().__init__(machine)
        self._order, self._prefers_one_node = order, prefers_one_node

    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        nodes = self._order(job, turn)
        if self._prefers_one_node and (self.free >= gpus).any():
            nodes = nodes[self.free[nodes] >= gpus][:1]
        counts = self.free[nodes]
        before = np.cumsum(counts) - counts
        if before[-1] + counts[-1] < gpus:
            return None
        parts = []
        for node, number in zip(nodes.tolist(), np.clip(gpus - before, 0, counts).tolist(), strict=True):
            mask = left = self.free_mask[node]
            for _ in range(number):
                left &= left - 1  # without its lowest GPU
            if number:
                parts.append((node, mask ^ left))
        return sorted(parts)
