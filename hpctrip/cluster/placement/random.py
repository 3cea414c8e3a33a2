"""GPUs drawn at random, for comparison."""

from __future__ import annotations

from hpctrip.base.rng import stream
from hpctrip.cluster.machine import Machine
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Parts, Placement, scattered


@PLACEMENTS.add
class Random(Placement):
    """Free GPUs of nodes in a random order, off or on; nothing is moved."""

    kind = "random"

    def layout(self, machine: Machine, seed: int) -> Layout:
        """The order is drawn from (seed, "placement", job, turn)."""
        return _Random(machine, seed)


class _Random(Layout):
    def __init__(self, machine: Machine, seed: int):
        super().__init__(machine)
        self._seed = seed

    def find(self, gpus: int, job: int, turn: int) -> Parts | None:
        nodes = stream(self._seed, "placement", job, turn).permutation(self.machine.num_nodes)
        return scattered(self, nodes, gpus)
