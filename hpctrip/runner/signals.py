"""Reasons for a run to end early: a signal at any rank, a stop file, the end of the job's time."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.ranks.launched import launched_rank
from hpctrip.sim.rounds import History

JOB_ENDS = "the job ends"
"""Beginning of the reason of a run that leaves because its job's time is over."""
RECENT_ROUNDS = 5
"""Number of last rounds of which the slowest predicts the length of the next one."""


class Interrupt(Component):
    """Conditions under which a run ends early, with a checkpoint and exit code 85. Nothing here changes a result."""

    signals: list[Literal["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGHUP", "SIGINT"]] = [
        "SIGUSR2",
        "SIGTERM",
        "SIGINT",
    ]
    """Signals, at any rank, that end the run after the round in progress. A second SIGINT (Ctrl-C) ends it at once,
    with exit code 130."""
    margin_rounds: int = Field(3, ge=0)
    """End the run when the remaining time of the job, by SLURM_JOB_END_TIME or job_s, is less than that of this many
    rounds and two checkpoints."""
    job_s: Seconds | None = Field(None, gt=0)
    """Wall time of this job, for jobs without Slurm."""


class Signals:
    """Context in which the named signals do not end the process; the last one is the value of `received`."""

    def __init__(self, names: Iterable[str] = ()):
        self._numbers = [signal.Signals[name] for name in names]
        self._handlers: dict[int, Any] = {}
        self.received = 0
        """Number of the last signal that this process has received; 0: none."""

    def __enter__(self) -> Signals:
        self._handlers = {number: signal.signal(number, self._receive) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.received == signal.SIGINT:
                raise KeyboardInterrupt
            if launched_rank() == 0:
                os.write(
                    2, b"\nhpctrip: the round in progress ends, then the run; Ctrl-C again ends it at once\n"
                )
        self.received = number


def stop_file(results: str | Path) -> Path:
    """Path of the stop file, FILE.h5.stop: a run ends after the current round if it exists."""
    return Path(f"{results}.stop")


class Interruption:
    """Decides at rank 0, after every round, whether the run ends early."""

    def __init__(
        self,
        rules: Interrupt,
        results: str | Path,
        hosts: Sequence[str],
        own: Signals,
        now: Callable[[], float] = time.time,
    ):
        """`hosts` are the host names of the ranks, `own` the signals of rank 0; `now` is the time in seconds since
        1970."""
        self._rules, self._hosts, self._own, self._now = rules, hosts, own, now
        self._stop_file = stop_file(results)
        self._ends_at = math.inf if rules.job_s is None else now() + rules.job_s
        """End of this job by the scheduler, in seconds since 1970; infinite if unknown."""
        with suppress(KeyError, ValueError):
            self._ends_at = min(self._ends_at, float(os.environ["SLURM_JOB_END_TIME"]))

    def reason(self, signals: Sequence[int], history: History, checkpoint_s: float) -> str:
        """The reason to end the run, or "". `signals` [ranks] are the signal numbers that the ranks had received at the
        end of the last round; `checkpoint_s` is the time of writing a checkpoint, in seconds."""
        for rank, number in enumerate([self._own.received or signals[0], *signals[1:]]):
            if number:
                return f"{signal.Signals(number).name} received by rank {rank} on {self._hosts[rank]}"
        if self._stop_file.exists():
            return f"stop file {self._stop_file}"
        recent_s = max((row.wall_s for row in history.rows[-RECENT_ROUNDS:]), default=0.0)
        needed_s = self._rules.margin_rounds * recent_s + 2 * checkpoint_s
        left_s = self._ends_at - self._now()
        if left_s < needed_s:
            rounds = self._rules.margin_rounds
            return f"{JOB_ENDS} in {left_s:.0f} s, {rounds} rounds and two checkpoints take {needed_s:.0f} s"
        return ""
