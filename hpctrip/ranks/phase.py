"""The phase that this process is in: for the watchdog, where it is; for the results, the wall time by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Phase:
    """What this process is doing. Written by the main thread, read by the watchdog's."""

    name: str = "start"
    round: int = 0
    waits: bool = False
    """Only for other ranks: none of that time is this rank's fault."""
    since: float = field(default_factory=time.monotonic)
    """When it came here, by time.monotonic (which stands still while a laptop sleeps)."""

    def enter(self, name: str, round: int) -> None:
        """Begin a phase, or one more piece of it: time is counted anew."""
        self.name, self.round, self.since = name, round, time.monotonic()

    def waiting(self) -> Waiting:
        """A context whose body only waits for other ranks."""
        return Waiting(self)


@dataclass(slots=True)
class Waiting:
    """See `Phase.waiting`. A class, as it is entered at every step of a collective: a generator takes twice as long."""

    phase: Phase

    def __enter__(self) -> None:
        self.phase.waits, self.phase.since = True, time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.phase.waits, self.phase.since = False, time.monotonic()


current_phase = Phase()
"""Of this process, which is in one phase at a time."""


class RoundTimer:
    """Wall seconds of the round in progress, and by phase. A round begins where the last one ended."""

    def __init__(self) -> None:
        self._began: float | None = None
        self.phases: dict[str, float] = {}

    def start(self) -> None:
        """The round in progress is planned: its phases follow."""
        self.phases = {}
        self._began = self._began or time.perf_counter()

    def end(self) -> float:
        """Wall time of the round, which is over."""
        assert self._began is not None
        began, self._began = self._began, time.perf_counter()
        return self._began - began

    @contextmanager
    def phase(self, name: str, round: int) -> Iterator[None]:
        """Enter the phase, for the watchdog too, and add the time of the body to it."""
        current_phase.enter(name, round)
        began = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - began
