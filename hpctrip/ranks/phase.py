"""The current phase of a rank, for its watchdog, and wall times by phase, for the results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Phase:
    """The current phase of a rank. The main thread writes it, the watchdog thread reads it."""

    name: str = "start"
    round: int = 0
    waits: bool = False
    """Whether the rank is only waiting for others."""
    since: float = field(default_factory=time.monotonic)
    """Start of the phase or the wait, in seconds of time.monotonic (which stops while a laptop sleeps)."""

    def enter(self, name: str, round: int) -> None:
        """Begin a phase, or the next part of one: its time starts at 0."""
        self.name, self.round, self.since = name, round, time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A context whose body only waits for other ranks; the time in it does not count as the phase's."""
        self.waits, self.since = True, time.monotonic()
        try:
            yield
        finally:
            self.waits, self.since = False, time.monotonic()


class RoundTimer:
    """Measures the wall time of the current round and its phases. A round begins at the end of the one before."""

    def __init__(self, phase: Phase) -> None:
        """`phase` is the phase of this rank, which follows those that are measured."""
        self._current = phase
        self._began: float | None = None
        self.phases: dict[str, float] = {}

    def start(self) -> None:
        """Begin the phases of the next round."""
        self.phases = {}
        self._began = self._began or time.perf_counter()

    def end(self) -> float:
        """End the round; returns its wall time."""
        assert self._began is not None
        began, self._began = self._began, time.perf_counter()
        return self._began - began

    @contextmanager
    def phase(self, name: str, round: int) -> Iterator[None]:
        """Add the time of the body to a phase, which becomes the current one."""
        self._current.enter(name, round)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began
