"""Worker process that executes runs of a study one after the other, so that hpctrip is loaded once.

It communicates with the study over a pipe: it receives a `Job`, and returns a `Round` after each round and an `End`. If
the study's process is gone, the current run stops with a checkpoint and the worker exits.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

import tomli_w

from hpctrip.base.errors import HpctripError, InterruptedRun
from hpctrip.base.io import append_to, replace_file
from hpctrip.config.inputs import Tables
from hpctrip.config.plugins import Extensions
from hpctrip.record.lock import HeldError, is_held
from hpctrip.runner.experiment import resolve
from hpctrip.runner.resume import Start, start_or_resume_input
from hpctrip.runner.session import launch
from hpctrip.sim.step import State
from hpctrip.studies.run_store import RunStatus


@dataclass(frozen=True)
class Job:
    """One run to start or to resume."""

    tables: Tables
    """Merged input of the run."""
    plugins: tuple[str, ...]
    results: Path
    log: Path
    ranks: int = 1
    """Number of ranks; more than one are started by a launcher (see `launcher`)."""


@dataclass(frozen=True)
class Round:
    """Progress message after one round."""

    number: int
    num_sites: int
    accuracy: float
    """NaN if the model was not evaluated in this round."""
    clock_s: float


@dataclass(frozen=True)
class End:
    """Final message of a job."""

    status: RunStatus
    """FINISHED, FAILED, INTERRUPTED (can be resumed) or HELD (another process holds the lock of the run)."""
    reason: str = ""


_MAX_LAST_BYTES = 2**16
"""Length of the end of a launched run's log that is searched for its error message."""


class _StopRequest:
    """SIGTERM handler that records whether this process should stop.

    A run installs a handler of its own; a signal that arrived before is passed on to the run after its next round.
    """

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True


def serve_jobs(study: Connection, command: Sequence[str]) -> None:
    """Execute the jobs that arrive on the pipe until it closes or None arrives: the main function of the process.

    `command` is the study's command line, which results files record.
    """
    stop = _StopRequest()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes of the group
    signal.signal(signal.SIGTERM, stop)
    sys.orig_argv = list(command)
    terminal = os.dup(1), os.dup(2)
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while (job := study.recv()) is not None:
            try:
                log = append_to(job.log)
            except HpctripError as error:
                study.send(End(RunStatus.FAILED, str(error)))
                continue
            with log:
                for number in (1, 2):
                    os.dup2(log.fileno(), number)
                end = _execute(job, study, stop)
                sys.stdout.flush()
                for number, original in zip((1, 2), terminal, strict=True):
                    os.dup2(original, number)
            study.send(end)


def _execute(job: Job, study: Connection, stop: _StopRequest) -> End:
    """Execute the run in this process, or on several ranks."""
    if stop.received:
        return End(RunStatus.INTERRUPTED, "the study ends")

    def watch(state: State) -> None:
        row = state.history.last
        assert row is not None
        try:
            study.send(Round(row.round, row.num_sites, row.accuracy, row.clock_s))
        except OSError:
            stop.received = True
        if stop.received:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        if job.ranks > 1:
            return _execute_on_ranks(job, study, stop)
        launch(lambda: _begin(job), watch=watch)
    except HeldError as error:
        return End(RunStatus.HELD, str(error))
    except InterruptedRun as error:
        return End(RunStatus.INTERRUPTED, str(error))
    except HpctripError as error:
        return End(RunStatus.FAILED, str(error))
    except Exception as error:  # an error of ours or of a plug-in ends this run, not the study
        traceback.print_exc()
        return End(RunStatus.FAILED, " ".join(f"{type(error).__name__}: {error}".split()))
    return End(RunStatus.FINISHED)


def _begin(job: Job) -> Start:
    extensions = Extensions.of(job.plugins)
    extensions.run()
    return start_or_resume_input(resolve(job.tables, extensions), str(job.results))


def _execute_on_ranks(job: Job, study: Connection, stop: _StopRequest) -> End:
    """Execute the run on several ranks, with `hpctrip run` under a launcher."""
    input_file = job.results.with_suffix(".toml")
    code = (
        {"plugins": [os.path.abspath(os.path.expanduser(path)) for path in job.plugins]}
        if job.plugins
        else {}
    )
    replace_file(input_file, tomli_w.dumps(job.tables | code).encode())
    arguments = ["-m", "hpctrip", "run", str(input_file), "--out", str(job.results), "--resume"]
    began = os.fstat(1).st_size  # stdout is the log, which also holds the output of earlier attempts
    process = subprocess.Popen([*launcher(job.ranks), *arguments], stdin=subprocess.DEVNULL)
    signalled = False
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        if study.poll():  # the study sends nothing during a run, so the pipe is closed
            stop.received = True
        if stop.received and not signalled:
            signalled = True
            process.terminate()
    if process.returncode == 0:
        return End(RunStatus.FINISHED)
    if process.returncode == InterruptedRun.exit_code or stop.received:
        return End(RunStatus.INTERRUPTED, "the study ends")
    if is_held(job.results):
        return End(RunStatus.HELD)
    last = max(began, os.fstat(1).st_size - _MAX_LAST_BYTES)
    log = os.pread(1, _MAX_LAST_BYTES, last).decode(errors="replace")
    errors = [line for line in log.splitlines() if line.startswith("hpctrip: ")]
    return End(
        RunStatus.FAILED, (errors or [f"exit code {process.returncode}"])[-1].removeprefix("hpctrip: ")
    )


def launcher(num_ranks: int) -> list[str]:
    """Command that starts Python on several ranks: $HPCTRIP_LAUNCHER, a pattern as in slurm/launch.sh, or mpirun."""
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
    pattern = os.environ.get("HPCTRIP_LAUNCHER") or shlex.quote(mpirun)
    pattern += "" if "{n}" in pattern or "{python}" in pattern else " -n {n}"
    pattern += "" if "{python}" in pattern else " {python}"
    return shlex.split(
        pattern.replace("{n}", str(num_ranks)).replace("{python}", shlex.quote(sys.executable))
    )
