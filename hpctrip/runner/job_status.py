"""The state of a run in a small JSON file that the run itself writes, for those that wait for it.

It tells what the run last knew of itself. Whether its process still lives is told by the lock of its results, and a
finished results file counts more than this one.
"""

from __future__ import annotations

import enum
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from hpctrip.base.errors import FAULT_EXIT_CODE, HpctripError, InterruptedRun, blame, cause
from hpctrip.base.io import read_file, replace_file
from hpctrip.record.lock import HeldError
from hpctrip.sim.rounds import RoundRow

INTERVAL_S = 1.0
"""Least wall seconds between two rounds that are written."""
JOB_IDS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
"""Environment variables of schedulers with the number of the job."""


class RunStatus(enum.StrEnum):
    """State of a run. The last three are never those that it writes itself."""

    FINISHED = "finished"
    """The run reached one of its stop rules."""
    RUNNING = "running"
    """A process holds the lock of the run."""
    INTERRUPTED = "interrupted"
    """The run has started and can be resumed."""
    FAILED = "failed"
    QUEUED = "queued"
    """A scheduler has been asked to start the run."""
    PLANNED = "planned"
    """The run has not started."""
    STALE = "stale"
    """Planned, while a run of the same name finished with another input."""
    HELD = "held"
    """The attempt failed because another process holds the lock of the run."""


class JobStatus(BaseModel, frozen=True, extra="forbid"):
    """The last status that a run has written."""

    state: RunStatus = RunStatus.QUEUED
    reason: str = ""
    """Why it was interrupted or failed, in one line."""
    exit_code: int | None = None
    """Of its last start; None: that has not ended."""
    round: int = 0
    accuracy: float | None = None
    clock_s: float = 0.0
    job: str = ""
    """The scheduler's number of the job, or the submission in which the run is queued."""
    warnings: tuple[str, ...] = ()
    """Of all starts."""

    @classmethod
    def read(cls, path: Path) -> JobStatus | None:
        """The status in a file; None if there is none, or it is damaged."""
        with suppress(HpctripError, ValueError):
            return cls.model_validate_json(read_file(path))
        return None

    def write(self, path: Path) -> None:
        """Write the file. Raises InputError or HpctripError if that is impossible."""
        replace_file(path, self.model_dump_json().encode(), durable=False)

    def changed(self, **changes: Any) -> JobStatus:
        """This status with other values."""
        return self.model_copy(update=changes)


class StatusFile:
    """The status file of this run. What cannot be written is left out: the run goes on."""

    def __init__(self, path: str | Path | None):
        """None: nothing is written."""
        self._path, self._written_at = path and Path(path), 0.0
        self.status = JobStatus()

    @contextmanager
    def until_over(self, rank: int) -> Iterator[None]:
        """A context that records how the run ends. A run that another process holds is left to it."""
        try:
            yield
        except HeldError:
            raise
        except BaseException as error:
            if rank == 0 or not getattr(error, "agreed", False):
                self._end(error, rank)
            raise
        else:
            if rank == 0:
                self._write(state=RunStatus.FINISHED, exit_code=0)

    def begin(self) -> None:
        """Record that this start of the run has its lock. Warnings of earlier starts are kept."""
        earlier = (self._path and JobStatus.read(self._path)) or JobStatus()
        job = next((os.environ[name] for name in JOB_IDS if os.environ.get(name)), "")
        self.status = earlier.changed(reason="", exit_code=None)
        self._write(state=RunStatus.RUNNING, job=job)

    def round(self, row: RoundRow) -> None:
        """Record a finished round."""
        accuracy = float(row.accuracy) if row.eval_seen else self.status.accuracy
        facts = {"round": int(row.round), "accuracy": accuracy, "clock_s": float(row.clock_s)}
        if time.monotonic() - self._written_at < INTERVAL_S:
            self.status = self.status.changed(**facts)
        else:
            self._write(**facts)

    def say(self, line: str) -> None:
        """Keep a line that was printed, if it is a warning."""
        if "warning: " in line and line not in self.status.warnings:
            self._write(warnings=(*self.status.warnings, line))

    def _end(self, error: BaseException, rank: int) -> None:
        if rank and self._path:  # rank 0 has written it so far
            self.status = JobStatus.read(self._path) or self.status
        if isinstance(error, InterruptedRun | KeyboardInterrupt):
            code = InterruptedRun.exit_code if isinstance(error, InterruptedRun) else 130
            self._write(state=RunStatus.INTERRUPTED, reason=str(error), exit_code=code)
            return
        text, code = (str(error), 1) if isinstance(error, SystemExit) else blame(error)  # type: ignore[arg-type]
        reason = cause(error) if code == FAULT_EXIT_CODE else text
        by = f"rank {rank}: " if rank else ""
        self._write(state=RunStatus.FAILED, reason=f"{by}{' | '.join(reason.splitlines())}", exit_code=code)

    def _write(self, **changes: Any) -> None:
        self.status, self._written_at = self.status.changed(**changes), time.monotonic()
        if self._path:
            with suppress(HpctripError):
                self.status.write(self._path)
