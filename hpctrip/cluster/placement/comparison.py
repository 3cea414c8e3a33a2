"""Simple placements for comparison: first fit and random."""

from __future__ import annotations

import numpy as np

from hpctrip.base.rng import stream
from hpctrip.cluster.machine import Machine
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Parts, Placement, lowest, scattered


@PLACEMENTS.add
class FirstFit(Placement):
    """Places a job on the first node that holds it whole, else on the first free GPUs of any nodes; no migrations."""

    kind = "first-fit"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build an empty layout that searches nodes by number; `seed` is not used."""
        return _FirstFit(machine)


class _FirstFit(Layout):
    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        fits = np.flatnonzero(self.free >= gpus)
        if len(fits):
            node = int(fits[0])
            return [(node, lowest(self.free_mask[node], gpus))]
        return scattered(self, np.arange(self.machine.num_nodes), gpus)


@PLACEMENTS.add
class RandomPlacement(Placement):
    """Places a job on free GPUs of nodes in random order, whether on or off; no migrations."""

    kind = "random"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Build an empty layout that draws the order of nodes from the stream (seed, "placement", job, turn)."""
        return _Random(machine, seed)


class _Random(Layout):
    def __init__(self, machine: Machine, seed: int):
        super().__init__(machine)
        self._seed = seed

    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        nodes = stream(self._seed, "placement", job, turn).permutation(self.machine.num_nodes)
        return scattered(self, nodes, gpus)
