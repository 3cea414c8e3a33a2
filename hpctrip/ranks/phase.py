"""The current phase of this process, for the watchdog, and wall times by phase, for the results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Phase:
    """The current phase of this process. The main thread writes it, the watchdog thread reads it."""

    name: str = "start"
    round: int = 0
    waits: bool = False
    """Whether the process is only waiting for other ranks."""
    since: float = field(default_factory=time.monotonic)
    """Start of the phase or the wait, in seconds of time.monotonic (which stops while a laptop sleeps)."""

    def enter(self, name: str, round: int) -> None:
        """Begin a phase, or the next part of one: its time starts at 0."""
        self.name, self.round, self.since = name, round, time.monotonic()

    def waiting(self) -> Waiting:
        """A context whose body only waits for other ranks."""
        return Waiting(self)


@dataclass(slots=True)
class Waiting:
    """The context of `Phase.waiting`. A class, because a generator takes twice as long and every step of a collective
    enters one."""

    phase: Phase

    def __enter__(self) -> None:
        self.phase.waits, self.phase.since = True, time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.phase.waits, self.phase.since = False, time.monotonic()


current_phase = Phase()
"""The phase of this process."""


class RoundTimer:
    """Measures the wall time of the current round and its phases. A round begins at the end of the one before."""

    def __init__(self) -> None:
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
        """Add the time of the body to a phase, and show that phase to the watchdog."""
        current_phase.enter(name, round)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began
