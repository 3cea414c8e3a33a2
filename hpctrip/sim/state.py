"""What survives a round at the aggregator, besides the model: nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpctrip.sim.rounds import History


@dataclass(frozen=True)
class State:
    """A run between two rounds."""

    round: int = 0
    """Finished rounds."""
    clock_s: float = 0.0
    """Simulated time."""
    history: History = field(default_factory=History)
    stop_reason: str = ""
    """The rule that ended the run; empty: it goes on."""
