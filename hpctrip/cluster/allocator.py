"""Carries out a scheduler's plan: stops, starts and moves jobs, switches nodes, and keeps the power limit.

A node is switched on for a job, and off some time after its last job has left.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable

import numpy as np

from hpctrip.cluster.placement import Layout
from hpctrip.cluster.placement.base import Move, Parts
from hpctrip.cluster.state import JobState
from hpctrip.sim.hardware.gpu_power import Gpu

_ROUNDING = 1e-12
"""Relative tolerance by which a sum of powers may exceed the limit."""


class Nodes:
    """Power states of all nodes: off, booting or on. `layout.powered` marks the nodes that are on or booting."""

    def __init__(self, layout: Layout):
        self.machine, self._layout = layout.machine, layout
        self.up = np.zeros(self.machine.num_nodes, bool)
        """[nodes] whether a node is on and has booted."""
        self._up_s = np.full(self.machine.num_nodes, np.inf)
        self._on_s = np.full(self.machine.num_nodes, np.nan)
        self._left = [0] * self.machine.num_nodes
        self._events: list[tuple[float, int, str, int, int]] = []
        self._number = itertools.count()
        self.boots = 0
        first_on = None if self.machine.off_after_s == "never" else self.machine.hot_spares
        for node in range(self.machine.num_nodes)[:first_on]:
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
        """Switch off all nodes without a job at once, booting ones and hot spares included, to save power.

        A boot that began at this same time is not counted.
        """
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
        self._up_s[node] = up_s
        self._push(up_s, "up", node, 0)

    def _set_up(self, node: int, clock_s: float) -> None:
        self.up[node] = True
        self.vacated([node], clock_s)

    def _switch_off(self, node: int) -> None:
        self._layout.power(node, False)
        self.up[node] = False
        self._up_s[node] = np.inf

    def _push(self, at_s: float, kind: str, node: int, stamp: int) -> None:
        heapq.heappush(self._events, (at_s, next(self._number), kind, node, stamp))


class Allocator:
    """Assigns the GPUs of the cluster to jobs and switches its nodes."""

    def __init__(self, state: JobState, layout: Layout, gpu: Gpu, restart_s: float, max_migrations: int):
        self.state, self.layout, self.nodes = state, layout, Nodes(layout)
        self.machine = layout.machine
        self._gpu, self._restart_s, self._max_migrations = gpu, restart_s, max_migrations
        self._waking: list[tuple[float, int]] = []
        self.highest = len(gpu.frequencies) - 1  # frequency that the power limit has left

    def apply(
        self, ids: np.ndarray, gpus: np.ndarray, frequency: np.ndarray, elastic: bool, clock_s: float
    ) -> None:
        """Give the jobs `ids` [J] their numbers of GPUs [J] and frequency indices [J].

        A job whose number of GPUs is unchanged keeps its GPUs. The other jobs are placed again, the largest first. A
        job that does not fit even after other jobs were moved gets fewer GPUs if `elastic`, else it waits. If a running
        job can then not grow, it keeps its GPUs and is not restarted, unless a larger one has taken them.
        """
        present = self.state.gpus[ids]
        clocked = ids[(gpus == present) & (gpus > 0) & (self.state.frequency[ids] != frequency)]
        self.state.frequency[ids] = frequency
        self._reconfigure(clocked, clock_s)
        self._stop(ids[gpus < present], clock_s)
        former = {job: self.layout.release(job) for job in ids[(gpus > present) & (present > 0)].tolist()}
        starting = np.flatnonzero((gpus != present) & (gpus > 0))
        moves_left = self._max_migrations
        for at in starting[np.argsort(-gpus[starting], kind="stable")].tolist():
            job, before = int(ids[at]), former.get(int(ids[at]), [])
            placed, num_moves = self._place(job, int(gpus[at]), elastic, before, moves_left, clock_s)
            moves_left -= num_moves
            if before and self.layout.parts.get(job) == before:
                self._reconfigure(np.array([job]), clock_s)
                continue
            if before:
                self.state.stop(np.array([job]), clock_s)
                self.nodes.vacated((node for node, _ in before), clock_s)
            if placed:
                self._start(job, placed, clock_s)
        if moves_left and self.machine.off_after_s != "never":
            self._restart_moved(self.layout.rearrange(moves_left), clock_s)

    def complete(self, ids: np.ndarray, clock_s: float) -> None:
        """Mark these jobs as completed and free their GPUs."""
        self.state.complete(ids, clock_s)
        self._release(ids, clock_s)

    def next_s(self) -> float:
        """Time of the next event: nodes become ready, a waiting job starts, or a node switches off; inf: none."""
        return min(self.nodes.next_s(), self._waking[0][0] if self._waking else np.inf)

    def advance(self, clock_s: float) -> None:
        """Process all events up to `clock_s`."""
        self.nodes.advance(clock_s)
        while self._waking and self._waking[0][0] <= clock_s:
            ready_s, job = heapq.heappop(self._waking)
            # otherwise it was stopped in the meantime
            if self.state.works_from_s[job] == ready_s + self._restart_s:
                self.state.settle(np.array([job]), clock_s)
                self.state.power_w[job] = self.state.draw_w[job]

    def keep_below(self, limit_w: float, ids: np.ndarray, clock_s: float) -> None:
        """Reduce the power of the cluster to at most `limit_w`, also once all nodes have booted.

        `ids`: the active jobs by falling importance. First, nodes without a job are switched off; then all frequencies
        are capped at the highest one that meets the limit; then the least important jobs are paused.
        """
        bound_w, self.highest = limit_w * (1 + _ROUNDING), len(self._gpu.frequencies) - 1
        if self._committed_w(ids) <= bound_w:
            return
        self.nodes.switch_off_empty(clock_s)
        running = ids[self.state.gpus[ids] > 0]
        self._slow_down(running, bound_w, clock_s)
        excess_w = self._committed_w(ids) - bound_w
        for job in running[::-1].tolist():
            if excess_w <= 0:
                break
            self._stop(np.array([job]), clock_s)
            self.nodes.switch_off_empty(clock_s)
            excess_w = self._committed_w(ids) - bound_w

    def _committed_w(self, ids: np.ndarray) -> float:
        """Power of the cluster in watts once all nodes have booted."""
        num_powered = int(self.layout.powered.sum())
        idle = num_powered * self.machine.gpus_per_node - int(self.state.gpus[ids].sum())
        hosts_w = num_powered * self.machine.host_w
        return float(self.state.draw_w[ids].sum()) + hosts_w + idle * self._gpu.idle_w

    def _slow_down(self, running: np.ndarray, bound_w: float, clock_s: float) -> None:
        others_w = self._committed_w(running) - float(self.state.draw_w[running].sum())
        frequency = self.state.frequency[running]
        for highest in range(len(self._gpu.frequencies) - 1, -1, -1):
            slowed = np.minimum(frequency, highest)
            if others_w + self.state.profile_rows(running, slowed)[1].sum() <= bound_w:
                break
        self.highest, self.state.frequency[running] = highest, slowed
        self._reconfigure(running[slowed != frequency], clock_s)

    def _place(
        self, job: int, gpus: int, elastic: bool, before: Parts, most_moves: int, clock_s: float
    ) -> tuple[int, int]:
        """Find GPUs for a job that had the GPUs `before`, and assign them; moves at most `most_moves` other jobs.

        Returns the number of its GPUs, 0 if it cannot be placed, and the number of jobs that were moved.
        """
        layout, turn, moves = self.layout, int(self.state.starts[job]), []
        placed = layout.place(gpus, job, turn)
        if not placed and most_moves:
            moves = layout.make_room(gpus, most_moves)
            self._restart_moved(moves, clock_s)
            placed = bool(moves) and layout.place(gpus, job, turn)
        while not placed and elastic and gpus > 1:
            gpus //= 2
            if before and gpus <= self.state.gpus[job] and layout.are_free(before):
                layout.take(job, before)
                return int(self.state.gpus[job]), len(moves)
            placed = layout.place(gpus, job, turn)
        return gpus if placed else 0, len(moves)

    def _reconfigure(self, ids: np.ndarray, clock_s: float) -> None:
        """Let jobs that keep their GPUs run at their present frequencies from now on."""
        if len(ids):
            self.state.settle(ids, clock_s)
            self.state.configure(ids, clock_s, self.state.power_w[ids] > 0)

    def _start(self, job: int, gpus: int, clock_s: float) -> None:
        on = [node for node, _ in self.layout.parts[job]]
        ready_s = self.nodes.occupy(on, clock_s)
        self.state.start(job, gpus, len(on), clock_s, ready_s, self._restart_s)
        self.state.configure(np.array([job]), clock_s, ready_s <= clock_s)
        if ready_s > clock_s:
            heapq.heappush(self._waking, (ready_s, job))

    def _stop(self, ids: np.ndarray, clock_s: float) -> None:
        self.state.stop(ids, clock_s)
        self._release(ids, clock_s)

    def _release(self, ids: np.ndarray, clock_s: float) -> None:
        for job in ids.tolist():
            self.nodes.vacated((node for node, _ in self.layout.release(job)), clock_s)

    def _restart_moved(self, moves: Iterable[Move], clock_s: float) -> None:
        """Restart jobs that the layout has moved on their new nodes."""
        for move in moves:
            gpus = int(self.state.gpus[move.job])
            self.state.stop(np.array([move.job]), clock_s)
            self.state.migrations[move.job] += 1
            self.nodes.vacated((node for node, _ in move.before), clock_s)
            self._start(move.job, gpus, clock_s)
