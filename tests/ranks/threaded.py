"""Ranks that are threads of this process: as much of `Ranks` as a watchdog needs, with real sockets between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from hpctrip.ranks.phase import Phase
from hpctrip.ranks.watchdog.watchdog import Limits, Watchdog


class ThreadRank:
    """One of `size` ranks, which share `box` and `barrier`."""

    def __init__(self, rank: int, box: list, barrier: threading.Barrier):
        self.rank, self.size, self._box, self._barrier = rank, len(box), box, barrier
        self.phase = Phase()

    def gather(self, value: Any) -> list[Any] | None:
        values = self._exchanged(value)
        return values if self.rank == 0 else None

    def decide_on_root(self, decide: Callable[[], Any]) -> Any:
        return self._exchanged(decide() if self.rank == 0 else None)[0]

    def _exchanged(self, value: Any) -> list[Any]:
        self._box[self.rank] = value
        self._barrier.wait(60)
        values = list(self._box)
        self._barrier.wait(60)
        return values


def thread_ranks(size: int) -> list[ThreadRank]:
    """The ranks of one job."""
    box, barrier = [None] * size, threading.Barrier(size)
    return [ThreadRank(rank, box, barrier) for rank in range(size)]


def together(parts: list[Callable[[], Any]]) -> list[Any]:
    """Run a function per rank at the same time; returns their results."""
    with ThreadPoolExecutor(len(parts)) as pool:
        return [future.result() for future in [pool.submit(part) for part in parts]]


@contextmanager
def watched(size: int, limits: Limits, end: Callable[[int], None]):
    """A watchdog for each of so many ranks, all of them watching."""
    dogs = [Watchdog(rank, limits, end) for rank in thread_ranks(size)]
    with ExitStack() as stack:
        together([dog.__enter__ for dog in dogs])
        for dog in dogs:
            stack.push(dog)
        yield dogs
