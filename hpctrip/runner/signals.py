"""Reasons for a run to end early: a signal at any rank, a stop file, the end of the job's time."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from pydantic import Field

from hpctrip.base import process
from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.text import printable
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.sim.rounds import History

JOB_ENDS = "the job ends"
"""Beginning of the reason of a run that leaves because its job's time is over."""
RECENT_ROUNDS = 5
"""Number of last rounds of which the slowest predicts the length of the next one."""
JOB_START = "HPCTRIP_JOB_START"
"""Environment variable with the start of the job, in seconds since 1970."""
SLURM_END = "SLURM_JOB_END_TIME"
"""Slurm's variable with the end of the job, in seconds since 1970."""
SLURM_JOB = "SLURM_JOB_ID"
"""Slurm's variable with the number of the job."""
_libc = ctypes.CDLL(None)


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
    """End the run when the remaining time of the job, by SLURM_JOB_END_TIME or job_s, is less than the time of this
    many rounds and two checkpoints, but not before one round per start."""
    job_s: Seconds | None = Field(None, gt=0)
    """Wall time of this job, for jobs without Slurm. It counts from the start of this process, or from
    HPCTRIP_JOB_START (seconds since 1970)."""


class Signals:
    """Context in which the named signals do not end the process; the last one is the value of `received`, also one that
    was kept for it (`process.keep_signals`). Outside the main thread, where Python allows no handlers, signals do what
    they did before."""

    def __init__(self, names: Iterable[str] = (), to_the_end: bool = False):
        """With `to_the_end` they are ignored from there on, so that none changes the exit code of what is done."""
        self._numbers, self._to_the_end = [signal.Signals[name] for name in names], to_the_end
        self._handlers: dict[int, tuple[Any, Any]] = {}
        self.received = 0
        """Number of the last signal that this process has received; 0: none."""

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in self._numbers:
            action = ctypes.create_string_buffer(1024)  # more than any struct sigaction takes
            _libc.sigaction(number, None, action)
            self._handlers[number] = action, signal.signal(number, self._receive)
        for number in process.kept_signals():
            os.kill(os.getpid(), number)  # to the handler above, if it is one of the named
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        is_done = self._to_the_end and (error is None or issubclass(error, HpctripError))
        for number, (action, handler) in self._handlers.items():
            signal.signal(
                number, signal.SIG_IGN if is_done else signal.SIG_DFL if handler is None else handler
            )
            if not is_done:
                _libc.sigaction(number, action, None)  # a handler of C code, which Python does not know

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self.received == signal.SIGINT:
                raise KeyboardInterrupt
            if process.launched_rank() == 0:
                os.write(
                    2, b"\nhpctrip: the round in progress ends, then the run; Ctrl-C again ends it at once\n"
                )
        self.received = number


def stop_file(results: str | Path) -> Path:
    """Path of the stop file, FILE.h5.stop: a run ends after the current round if it exists."""
    return Path(f"{results}.stop")


def refuse_left_over(results: str | Path) -> None:
    """Raise InputError for a stop file that was meant for an earlier start. One that is younger than this process asks
    this run to stop, as does one with the number of this job, from a script that was told before it had started us."""
    if not (file := stop_file(results)).exists():
        return
    with suppress(OSError):
        if process.ends_with_run and file.stat().st_mtime >= process.start_time():
            return
        if file.read_text(errors="replace").strip() == os.environ.get(SLURM_JOB):
            return
    raise InputError(str(file), "asks runs with this results file to stop", "remove it to run")


class Interruption:
    """Decides at rank 0, after every round, whether the run ends early.

    No start leaves before it is a round further, whatever asks it to: a job script that starts the run again after exit
    code 85 makes progress.
    """

    def __init__(
        self,
        rules: Interrupt,
        results: str | Path,
        hosts: Sequence[str],
        own: Signals,
        first_round: int = 0,
    ):
        """`hosts` are the host names of the ranks, `own` the signals of rank 0, `first_round` is the round beyond
        which this start has to come."""
        self._rules, self._hosts, self._own = rules, hosts, own
        self._stop_file, self._first_round = stop_file(results), first_round
        started = process.start_time()
        self._ends_at = math.inf
        """End of this job, in seconds since 1970; infinite if unknown."""
        warnings = []
        if rules.job_s is not None:
            begun, warning = _time_from(
                JOB_START, lambda begun: begun <= started < begun + rules.job_s, started
            )
            self._ends_at = begun + rules.job_s
            warnings.append(warning)
        ends_at, warning = _time_from(SLURM_END, lambda end: end > started, math.inf)
        if not os.environ.get(SLURM_END) and (job := os.environ.get(SLURM_JOB)):
            ends_at = _end_of_job(job)  # not every version of Slurm sets it
        self._ends_at = min(self._ends_at, ends_at)
        if asked := self.request([0] * len(hosts)):
            note = "asked to stop before the first round: the run ends once it is a round further"
            warnings.append(f"{note} ({asked})")
        self.notes = tuple(filter(None, (*warnings, warning)))
        """Times in the environment that are not believed, and a request to stop that has come already."""

    def reason(self, signals: Sequence[int], history: History, checkpoint_s: float) -> str:
        """The reason to end the run after the rounds of `history`, or "" (see `request` and `shortage`)."""
        if len(history) <= self._first_round:
            return ""
        return self.request(signals) or self.shortage(history, checkpoint_s)

    def request(self, signals: Sequence[int]) -> str:
        """The signal or stop file that asks the run to end, or "". `signals` [ranks] are the signal numbers that the
        ranks had received at the end of the last round."""
        for rank, number in enumerate([self._own.received or signals[0], *signals[1:]]):
            if number:
                return f"{signal.Signals(number).name} received by rank {rank} on {self._hosts[rank]}"
        return f"stop file {self._stop_file}" if self._stop_file.exists() else ""

    def shortage(self, history: History, checkpoint_s: float) -> str:
        """Why the time that is left to the job does not suffice to go on, or "". `checkpoint_s` is the time of writing
        a checkpoint, in seconds."""
        if len(history) <= self._first_round:
            return ""
        rounds = self._rules.margin_rounds
        recent_s = max(row.wall_s for row in history.rows[-RECENT_ROUNDS:])
        needed_s = rounds * recent_s + 2 * checkpoint_s
        left_s = self._ends_at - time.time()
        if left_s >= needed_s:
            return ""
        return f"{JOB_ENDS} in {left_s:.0f} s, {rounds} rounds and two checkpoints take {needed_s:.0f} s"


@cache
def _end_of_job(job: str) -> float:
    """When a Slurm job ends, in seconds since 1970, as squeue tells; infinite where it does not."""
    question = ["squeue", "--noheader", "--format=%e", f"--jobs={job}"]
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        answer = subprocess.run(question, capture_output=True, text=True, timeout=20)
        end = datetime.fromisoformat(answer.stdout.strip()).timestamp()
        return end if end > time.time() else math.inf
    return math.inf


def _time_from(name: str, believable: Callable[[float], bool], default: float) -> tuple[float, str]:
    """(the time in the environment variable `name`, ""), or the default with a warning where it is not believable: no
    number, or left over from another job."""
    text = os.environ.get(name)
    if not text:
        return default, ""
    with suppress(ValueError):
        if believable(value := float(text)):
            return value, ""
    return default, f"warning: {name}={printable(text, 40)} is ignored: no such time fits this job"
