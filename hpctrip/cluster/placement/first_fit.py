"""The first GPUs that are free, for comparison."""

from __future__ import annotations

import numpy as np

from hpctrip.cluster.machine import Machine
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Parts, Placement, lowest, scattered


@PLACEMENTS.add
class FirstFit(Placement):
    """The first node with room for the whole job, else the first free GPUs wherever they lie; nothing is moved."""

    kind = "first-fit"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """Nodes in the order of their numbers."""
        return _FirstFit(machine)


class _FirstFit(Layout):
    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        fits = np.flatnonzero(self.free >= gpus)
        if len(fits):
            node = int(fits[0])
            return [(node, lowest(self.free_mask[node], gpus))]
        return scattered(self, np.arange(self.machine.num_nodes), gpus)
