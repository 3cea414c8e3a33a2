"""Power management of nodes: a node is switched on for a job, and off some time after its last job has left."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

import numpy as np

from hpctrip.cluster.placement import Layout


class Nodes:
    """Power states of all nodes: off, booting or on. `layout.powered` marks the nodes that are on or booting."""

    def __init__(self, layout: Layout):
        self.machine, self._layout = layout.machine, layout
        never_off = self.machine.off_after_s == "never"
        first_on = (
            self.machine.num_nodes if never_off else min(self.machine.hot_spares, self.machine.num_nodes)
        )
        self.up = np.zeros(self.machine.num_nodes, bool)
        """[nodes] whether a node is on and has booted."""
        self._up_s = np.full(self.machine.num_nodes, np.inf)
        self._on_s = np.full(self.machine.num_nodes, np.nan)
        self._left = [0] * self.machine.num_nodes
        self._events: list[tuple[float, int, str, int, int]] = []
        self._number = itertools.count()
        self.num_powered = self.num_up = self.boots = 0
        for node in range(first_on):
            self._switch_on(node, 0.0)
            self._set_up(node, 0.0)

    def occupy(self, nodes: Iterable[int], clock_s: float) -> float:
        """Switch these nodes on if needed; returns the time at which all of them have booted."""
        ready_s = clock_s
        for node in nodes:
            if not self._layout.powered[node]:
                self._switch_on(node, clock_s + self.machine.boot_s)
                self._on_s[node] = clock_s
                if self.machine.boot_s == 0:
                    self._set_up(node, clock_s)
                self.boots += 1
            ready_s = max(ready_s, self._up_s[node])
        return ready_s

    def vacated(self, nodes: Iterable[int], clock_s: float) -> None:
        """Schedule the switch-off of those of these nodes that have no job left."""
        if self.machine.off_after_s == "never":
            return
        for node in nodes:
            if not self._layout.jobs_on[node] and self.up[node]:
                self._left[node] += 1
                self._push(clock_s + self.machine.off_after_s, "off", node, self._left[node])

    def switch_off_empty(self, clock_s: float) -> None:
        """Switch off all nodes without a job at once, booting ones included, to save power.

        A boot that began at this same time is not counted.
        """
        if self.machine.off_after_s == "never":
            return
        for node in np.flatnonzero(self._layout.powered).tolist():
            if not self._layout.jobs_on[node]:
                self.boots -= int(self._on_s[node] == clock_s)
                self._switch_off(node)

    def next_s(self) -> float:
        """Time of the next event; inf: none."""
        return self._events[0][0] if self._events else np.inf

    def advance(self, clock_s: float) -> None:
        """Process all events up to `clock_s`."""
        while self.next_s() <= clock_s:
            at_s, _, kind, node, stamp = heapq.heappop(self._events)
            if kind == "up" and self._up_s[node] == at_s and not self.up[node]:
                self._set_up(node, at_s)
            elif kind == "off" and self.up[node] and stamp == self._left[node] and self._is_spare(node):
                self._switch_off(node)

    def _is_spare(self, node: int) -> bool:
        if self._layout.jobs_on[node]:
            return False
        empty = self.up & (self._layout.free == self.machine.gpus_per_node)
        return int(empty.sum()) > self.machine.hot_spares

    def _switch_on(self, node: int, up_s: float) -> None:
        self._layout.power(node, True)
        self.num_powered += 1
        self._up_s[node] = up_s
        self._push(up_s, "up", node, 0)

    def _set_up(self, node: int, clock_s: float) -> None:
        self.up[node] = True
        self.num_up += 1
        self.vacated([node], clock_s)

    def _switch_off(self, node: int) -> None:
        self._layout.power(node, False)
        self.num_powered -= 1
        self.num_up -= int(self.up[node])
        self.up[node] = False
        self._up_s[node] = np.inf

    def _push(self, at_s: float, kind: str, node: int, stamp: int) -> None:
        heapq.heappush(self._events, (at_s, next(self._number), kind, node, stamp))
