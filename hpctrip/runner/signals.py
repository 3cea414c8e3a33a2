"""Reasons for a run to end early: a signal at any rank, a stop file, the end of the job's time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal

from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.ranks.launched import launched_rank
from hpctrip.sim.rounds import History

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


_received = 0


def received() -> int:
    """Number of the last signal that this process has received; 0: none."""
    return _received


def _note(number: int, frame: FrameType | None) -> None:
    global _received
    if number == signal.SIGINT:
        if _received == signal.SIGINT:
            raise KeyboardInterrupt
        if launched_rank() == 0:
            os.write(
                2, b"\nhpctrip: the round in progress ends, then the run; Ctrl-C again ends it at once\n"
            )
    _received = number


@contextmanager
def listening(names: Iterable[str]) -> Iterator[None]:
    """Context in which these signals only set the number that `received` returns."""
    global _received
    _received = 0
    before = {number: signal.signal(number, _note) for number in map(signal.Signals.__getitem__, names)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
        now: Callable[[], float] = time.time,
    ):
        """`hosts` are the host names of the ranks; `now` is the time in seconds since 1970."""
        self._rules, self._hosts, self._now = rules, hosts, now
        self._stop_file = stop_file(results)
        self._ends_at = job_ends_at(rules, now())

    def reason(self, signals: Sequence[int], history: History, checkpoint_s: float) -> str:
        """The reason to end the run, or "". `signals` [ranks] are the signal numbers that the ranks had received at the
        end of the last round; `checkpoint_s` is the time of writing a checkpoint, in seconds."""
        for rank, number in enumerate([received() or signals[0], *signals[1:]]):
            if number:
                return f"{signal.Signals(number).name} received by rank {rank} on {self._hosts[rank]}"
        if self._stop_file.exists():
            return f"stop file {self._stop_file}"
        recent_s = max((row.wall_s for row in history.rows[-RECENT_ROUNDS:]), default=0.0)
        needed_s = self._rules.margin_rounds * recent_s + 2 * checkpoint_s
        left_s = self._ends_at - self._now()
        if left_s < needed_s:
            rounds = self._rules.margin_rounds
            return (
                f"the job ends in {left_s:.0f} s, {rounds} rounds and two checkpoints take {needed_s:.0f} s"
            )
        return ""


def job_ends_at(rules: Interrupt, now: float) -> float:
    """Time in seconds since 1970 at which the scheduler ends this job; infinite if unknown."""
    ends = [float("inf")]
    if rules.job_s is not None:
        ends.append(now + rules.job_s)
    with suppress(KeyError, ValueError):
        ends.append(float(os.environ["SLURM_JOB_END_TIME"]))
    return min(ends)
