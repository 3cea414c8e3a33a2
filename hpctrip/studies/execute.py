"""Executes runs of studies on this machine side by side, each as `hpctrip run` in a child process of its own.

Children are forked from a server process that has imported torch once, so that small runs are cheap. Several studies,
or several starts of one study, may use the same folder at the same time: a run belongs to the process that holds its
lock. A run whose lock is held elsewhere returns to the queue and is tried again later.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hpctrip.base.errors import HpctripError, InputError, InterruptedRun
from hpctrip.base.fork_server import Forked, Request, readable
from hpctrip.base.io import append_to
from hpctrip.base.process import start_time
from hpctrip.base.text import printable
from hpctrip.ranks.base import visible_gpus
from hpctrip.record.lock import is_held
from hpctrip.runner.job_status import RunStatus
from hpctrip.runner.signals import JOB_ENDS, JOB_START, Signals
from hpctrip.studies.fork_runs import RUN_SERVER
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunState, RunStore

LAUNCHER = "HPCTRIP_LAUNCHER"
"""Environment variable with the command that starts ranks."""
POLL_S = 0.2
"""Wall seconds between two looks at the runs in progress."""
SIGNALS = ("SIGINT", "SIGTERM", "SIGUSR2")
_LOG_END_BYTES = 2**12
"""Length of the end of a log whose last line is quoted."""


@dataclass(frozen=True)
class Child:
    """A run in progress."""

    entry: Entry
    process: Forked
    """It stops with a checkpoint when this process is killed."""
    gpus: Sequence[str]
    """For CUDA_VISIBLE_DEVICES of the process; empty: inherited."""
    log: Path
    log_start: int
    """Size of the log before this attempt."""

    def end(self, stopping: bool, runs: RunStore) -> RunState:
        """How the run ended: FINISHED, FAILED, INTERRUPTED (can be resumed) or HELD. Derived from its results, the exit
        code of its process, and what the run tells itself."""
        code, identity = self.process.wait(), self.entry.identity
        job = runs.job(identity)
        ended = partial(RunState, self.entry, job=job)
        if code == 0:
            if runs.inspect(self.entry).finished:
                return ended(RunStatus.FINISHED)
            return ended(RunStatus.FAILED, "its process ended with exit code 0, but made no results")
        if code == InterruptedRun.exit_code or stopping:
            return ended(RunStatus.INTERRUPTED, job.reason.partition("; ")[0])
        if is_held(runs.results(identity)):
            return ended(RunStatus.HELD)
        if code < 0:
            return ended(RunStatus.FAILED, f"its process died by {signal.Signals(-code).name}")
        if job.state == RunStatus.FAILED:
            return ended(RunStatus.FAILED, job.reason or f"exit code {code}")
        line = _last_line(self.log, self.log_start)
        return ended(RunStatus.FAILED, f"exit code {code}{f', after: {line}' if line else ''}")


@dataclass
class Executor:
    """Executes the runs of the queue `waiting`, in order, up to `num_children` at a time."""

    runs: RunStore
    waiting: deque[Entry]
    num_children: int
    on_end: Callable[[RunState], None]
    """Called when a run has ended."""
    gpus: Sequence[str] = ()
    """Names for CUDA_VISIBLE_DEVICES, distributed over the children; empty: they inherit it from this process."""
    ranks: int = 1
    """Ranks of every run, and the GPUs that it gets, or all where there are fewer."""
    launch: Sequence[str] = ()
    """The words that start Python on the ranks of a run (see `launcher`); empty: one rank."""
    children: list[Child] = field(default_factory=list)

    def run(self, tick: Callable[[], None]) -> bool:
        """Execute all runs. `tick` is called about every `POLL_S`.

        Returns whether every run was started: False if a signal to this process, or the end of the job, stopped the
        queue early. A run that alone is told to leave, by a signal or its stop file, stops no other. A second Ctrl-C
        raises KeyboardInterrupt.
        """
        stopping = terminated = False
        try:
            with Signals(SIGNALS) as signals:
                while self.children or (self.waiting and not stopping):
                    if not stopping:
                        self._start_next()
                    stopping = self._collect(terminated) or stopping
                    if signals.received and not terminated:
                        stopping = terminated = True
                        for child in self.children:
                            child.process.signal(signal.SIGTERM)
                    tick()
        finally:
            for child in self.children:  # only after a second Ctrl-C or an error of ours
                child.process.signal(signal.SIGKILL)  # to its group, with the launcher of its ranks
                child.process.wait()
        return not stopping

    def _start_next(self) -> None:
        """Start runs of the queue while there is room."""
        for _ in range(len(self.waiting)):
            if len(self.children) == self.num_children:
                return
            entry = self.waiting.popleft()
            if self.runs.inspect(entry).finished:  # by another process, meanwhile
                self._ended(RunState(entry, RunStatus.FINISHED))
            elif is_held(self.runs.results(entry.identity)):
                self.waiting.append(entry)
            else:
                self._start(entry)

    def _start(self, entry: Entry) -> None:
        """Start a run, on the GPUs with the fewest."""
        self.runs.note(entry.identity, state=RunStatus.QUEUED, job="")
        log = self.runs.log(entry.identity)
        taken = [gpu for child in self.children for gpu in child.gpus]
        gpus = sorted(self.gpus, key=taken.count)[: self.ranks]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        # the study's start, for all runs
        environment[JOB_START] = os.environ.get(JOB_START) or f"{start_time():.3f}"
        start = [*self.launch, "-m", "hpctrip"] if self.launch else ["hpctrip"]
        try:
            results, input_file = self.runs.results(entry.identity), self.runs.write_input(entry)
            status = self.runs.status_file(entry.identity)
            arguments = [
                *start,
                "run",
                str(input_file),
                "--out",
                str(results),
                "--resume",
                "--status",
                str(status),
            ]
            request = Request(
                arguments=arguments, environment=environment, started=time.time(), on_loss=signal.SIGTERM
            )
            with append_to(log) as file:
                log_start = file.tell()
                process = RUN_SERVER.fork(request, file.fileno())
        except HpctripError as error:
            self._ended(RunState(entry, RunStatus.FAILED, str(error)))
        except OSError as error:
            self._ended(RunState(entry, RunStatus.FAILED, f"no process can be forked for it: {error}"))
        else:
            self.children.append(Child(entry, process, gpus, log, log_start))

    def _collect(self, stopping: bool) -> bool:
        """Process the ends of runs, waiting up to `POLL_S`. Returns whether a run left because the job ends."""
        readable([child.process for child in self.children], POLL_S)
        job_ends = False
        for child in [child for child in self.children if not child.process.is_alive()]:
            self.children.remove(child)
            end = child.end(stopping, self.runs)
            job_ends |= JOB_ENDS in end.reason
            self._ended(end)
        return job_ends

    def _ended(self, end: RunState) -> None:
        if end.status == RunStatus.HELD:
            self.waiting.append(end.entry)
            return
        if end.status == RunStatus.FAILED:
            reason = " | ".join(end.reason.splitlines())
            with suppress(HpctripError):  # what cannot be written is told anyway
                self.runs.note(end.entry.identity, state=RunStatus.FAILED, reason=reason)
        if end.finished:
            self.runs.remove_leftovers(end.entry.identity)
        self.on_end(end)


def _last_line(log: Path, start: int) -> str:
    """The last line that was written to a log after its first `start` bytes; empty if there is none."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(start, os.fstat(file.fileno()).st_size - _LOG_END_BYTES))
        lines = file.read().decode(errors="replace").split("\n")
        return printable(next((line for line in reversed(lines) if line.strip()), ""), 200)
    return ""


def launcher(num_ranks: int) -> list[str]:
    """The words of the command that starts Python on several ranks: $HPCTRIP_LAUNCHER, a pattern as in slurm/launch.sh,
    or mpirun. Empty for one rank. Raises InputError where there is no such command."""
    if num_ranks == 1:
        return []
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
    named = os.environ.get(LAUNCHER)
    pattern = named or shlex.quote(mpirun)
    pattern += "" if "{n}" in pattern or "{python}" in pattern else " -n {n}"
    pattern += "" if "{python}" in pattern else " {python}"
    pattern = pattern.replace("{n}", str(num_ranks)).replace("{python}", shlex.quote(sys.executable))
    with suppress(ValueError):  # a quotation that does not end
        if shutil.which((words := shlex.split(pattern))[0]):
            return words
    place = f"{LAUNCHER}={printable(named, 80)}" if named else f"--ranks {num_ranks}"
    problem = "is not a command that can be started here" if named else "there is no mpirun here"
    raise InputError(
        place, problem, f'set {LAUNCHER} to what starts ranks, e.g. "mpirun -np {{n}} {{python}}"'
    )


def capacity(entries: Iterable[Entry], ranks: int = 1) -> tuple[int, list[str]]:
    """(number of runs side by side, GPUs visible to this process): each of the `ranks` of a run has a GPU, or without
    GPUs a usable core for each of its threads."""
    if gpus := visible_gpus():
        return max(1, len(gpus) // ranks), gpus
    threads = max((entry.run_input.experiment.ranks.threads for entry in entries), default=1)
    return max(1, len(os.sched_getaffinity(0)) // (ranks * threads)), []
