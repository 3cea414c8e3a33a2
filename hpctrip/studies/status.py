"""What can become of a run of a study: the one list of these words."""

from __future__ import annotations

import enum


class RunStatus(enum.StrEnum):
    """How a run stands, as its files say, and how a worker's job ended."""

    FINISHED = "finished"
    """There is nothing left to do."""
    RUNNING = "running"
    """Some process has it."""
    INTERRUPTED = "interrupted"
    """It was begun and can go on."""
    FAILED = "failed"
    PLANNED = "planned"
    """Nobody has begun it."""
    STALE = "stale"
    """Planned, and a run of this name was finished with another input."""
    HELD = "held"
    """The end of a job: another process has the run."""
