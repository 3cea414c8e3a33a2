"""A process that makes one run of a study after the other: it loads hpctrip once.

It speaks with the study over a pipe: a job comes, `Round`s and an `End` go back. Where the study is gone, the run in
progress ends with a checkpoint and the process leaves.
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
from hpctrip.studies.status import RunStatus


@dataclass(frozen=True)
class Job:
    """One run to make, or to go on with."""

    tables: Tables
    """Its input, merged."""
    plugins: tuple[str, ...]
    results: Path
    log: Path
    ranks: int = 1
    """More than one are started by a launcher."""


@dataclass(frozen=True)
class Round:
    """A round is done."""

    number: int
    num_sites: int
    accuracy: float
    """NaN: not evaluated."""
    clock_s: float


@dataclass(frozen=True)
class End:
    """How a job ended."""

    how: RunStatus
    """FINISHED; HELD: another process has the run; INTERRUPTED: to be resumed; FAILED."""
    reason: str = ""


_MAX_LAST_BYTES = 2**16
"""Of what a launched run has printed, at its end, where it says of what it died."""


class _Told:
    """Whether this process was asked to leave (SIGTERM). A run listens by itself; what came before it did is passed
    on to it after its next round."""

    def __init__(self) -> None:
        self.leave = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.leave = True


def work(study: Connection, command: Sequence[str]) -> None:
    """The life of the process. `command` is the study's command line, which the results files record."""
    told = _Told()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches every process of a terminal; a run itself listens
    signal.signal(signal.SIGTERM, told)
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
                end = _end_of(job, study, told)
                sys.stdout.flush()
                for number, kept in zip((1, 2), terminal, strict=True):
                    os.dup2(kept, number)
            study.send(end)


def _end_of(job: Job, study: Connection, told: _Told) -> End:
    """Make the run."""
    if told.leave:
        return End(RunStatus.INTERRUPTED, "the study ends")

    def watch(state: State) -> None:
        row = state.history.last
        assert row is not None
        try:
            study.send(Round(row.round, row.num_sites, row.accuracy, row.clock_s))
        except OSError:
            told.leave = True
        if told.leave:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        if job.ranks > 1:
            return _launched(job, study, told)
        launch(lambda: _begin(job), watch=watch)
    except HeldError as error:
        return End(RunStatus.HELD, str(error))
    except InterruptedRun as error:
        return End(RunStatus.INTERRUPTED, str(error))
    except HpctripError as error:
        return End(RunStatus.FAILED, str(error))
    except Exception as error:  # whatever a run dies of is the end of this run, not of the study
        traceback.print_exc()
        return End(RunStatus.FAILED, " ".join(f"{type(error).__name__}: {error}".split()))
    return End(RunStatus.FINISHED)


def _begin(job: Job) -> Start:
    extensions = Extensions.of(job.plugins)
    extensions.run()
    return start_or_resume_input(resolve(job.tables, extensions), str(job.results))


def _launched(job: Job, study: Connection, told: _Told) -> End:
    """The same on several ranks, as the command that a person would give."""
    given = job.results.with_suffix(".toml")
    code = (
        {"plugins": [os.path.abspath(os.path.expanduser(path)) for path in job.plugins]}
        if job.plugins
        else {}
    )
    replace_file(given, tomli_w.dumps(job.tables | code).encode())
    arguments = ["-m", "hpctrip", "run", str(given), "--out", str(job.results), "--resume"]
    began = os.fstat(1).st_size  # stdout is the log, which holds what earlier attempts said
    process = subprocess.Popen([*launcher(job.ranks), *arguments], stdin=subprocess.DEVNULL)
    passed_on = False
    while process.poll() is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
        if study.poll():  # it says nothing while a run is made: it is gone
            told.leave = True
        if told.leave and not passed_on:
            passed_on = True
            process.terminate()
    if process.returncode == 0:
        return End(RunStatus.FINISHED)
    if process.returncode == InterruptedRun.exit_code or told.leave:
        return End(RunStatus.INTERRUPTED, "the study ends")
    if is_held(job.results):
        return End(RunStatus.HELD)
    last = max(began, os.fstat(1).st_size - _MAX_LAST_BYTES)
    log = os.pread(1, _MAX_LAST_BYTES, last).decode(errors="replace")
    said = [line for line in log.splitlines() if line.startswith("hpctrip: ")]
    return End(RunStatus.FAILED, (said or [f"exit code {process.returncode}"])[-1].removeprefix("hpctrip: "))


def launcher(num_ranks: int) -> list[str]:
    """The words that start so many ranks of Python: $HPCTRIP_LAUNCHER, a pattern as in slurm/launch.sh, or mpirun."""
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun") or "mpirun"
    pattern = os.environ.get("HPCTRIP_LAUNCHER") or shlex.quote(mpirun)
    pattern += "" if "{n}" in pattern or "{python}" in pattern else " -n {n}"
    pattern += "" if "{python}" in pattern else " {python}"
    return shlex.split(
        pattern.replace("{n}", str(num_ranks)).replace("{python}", shlex.quote(sys.executable))
    )
