"""Store of the runs of all studies in one folder, with file names that contain the identity of the run.

    DIR/runs/IDENTITY.h5     results; during the run also lock, checkpoints and its input, IDENTITY.toml
    DIR/runs/IDENTITY.csv    end and curve of a run that was imported from another machine
    DIR/store/               cache of trained rounds, for runs that differ only in their clock (`[store]`)
    DIR/logs/IDENTITY.log    output of a run that is not finished
    DIR/logs/IDENTITY.json   what a run last knew of itself (`JobStatus`), until it is finished without a warning
    DIR/submitted/           frozen lists of runs, and the scripts of their arrays

The status of a run is derived from these files and locks on every query, so that it is right after a kill, too. A
ledger may stand for the results of a finished run as long as their file has not changed (`from_ledger`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomli_w

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_folder, remove_file, replace_file
from hpctrip.config.identity import added_keys, differing, without
from hpctrip.config.plugins import without_folders
from hpctrip.config.sources import PLUGINS, changed_sources, read_sources
from hpctrip.record.checkpoint import generations
from hpctrip.record.lock import is_held
from hpctrip.record.reader import Run, open_run
from hpctrip.runner.job_status import JobStatus, RunStatus
from hpctrip.runner.provenance import WORKLOAD
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import read_imported

FOLDERS = ("runs", "store", "logs", "submitted")
"""Folders of the run store."""


@dataclass(frozen=True)
class RunState:
    """Current status of a run with the contents of its files, or how an attempt to execute it ended."""

    entry: Entry
    status: RunStatus
    reason: str = ""
    """Why the run stopped, or what is wrong with its file."""
    run: Run | None = None
    """The recorded rounds; tables of sites, cohorts and candidates are empty."""
    file: Path | None = None
    """File that `run` or the fault was read from."""
    imported: bool = False
    """Whether the run was imported from another machine."""
    blocks_run: bool = False
    """Whether a damaged file, or a file of another run, lies in the place of its results; it cannot start then."""
    job: JobStatus = JobStatus()
    """What the run last knew of itself."""
    earlier: str = ""
    """Identity under which a run of this name was last finished, from the ledger of its study; empty if none was."""
    row: Mapping[str, Any] | None = None
    """Row of the ledger that stands for `run` if the file was not read, as it is in the state that the row names."""

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.status == RunStatus.FINISHED

    @property
    def can_be_made(self) -> bool:
        """Whether the run is unfinished and can start."""
        return not self.finished and not self.blocks_run


class RunStore:
    """Runs of a folder, addressed by identity. Raises InputError if the folder, or one in it, is not a folder."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        for name in FOLDERS:
            check_folder(self.folder / name)
        self._read: dict[Path, tuple[str, Run]] = {}

    def results(self, identity: str) -> Path:
        """Path of the results file."""
        return self.folder / "runs" / f"{identity}.h5"

    def imported(self, identity: str) -> Path:
        """Path of the imported end and curve."""
        return self.folder / "runs" / f"{identity}.csv"

    def log(self, identity: str) -> Path:
        """Path of the log."""
        return self.folder / "logs" / f"{identity}.log"

    def status_file(self, identity: str) -> Path:
        """Path of the status that the run itself writes."""
        return self.log(identity).with_suffix(".json")

    def begun(self) -> set[str]:
        """The identities of all runs that have a file of any kind."""
        folders = [folder for name in ("runs", "logs") if (folder := self.folder / name).exists()]
        return {name.partition(".")[0] for folder in folders for name in os.listdir(folder)}

    def job(self, identity: str) -> JobStatus:
        """What a run last knew of itself."""
        return JobStatus.read(self.status_file(identity)) or JobStatus()

    def note(self, identity: str, **changes: Any) -> None:
        """Change the status of a run that is not started yet, or has died. Raises InputError if that is impossible."""
        status = self.job(identity).changed(**{"reason": "", "exit_code": None, **changes})
        status.write(self.status_file(identity))

    def remove_leftovers(self, identity: str) -> None:
        """Remove log, checkpoints, written input, and a status without warnings, of a finished run. It is never
        continued, as stop rules are part of its identity."""
        results, status = self.results(identity), self.status_file(identity)
        kept = bool(self.job(identity).warnings)
        for path in (self.log(identity), results.with_suffix(".toml"), *generations(results)):
            remove_file(path)
        if not kept:
            remove_file(status)

    def tables(self, given: dict[str, Any]) -> dict[str, Any]:
        """Input tables to start a run with: those given, with `store.path` in this folder by default. All runs share
        this cache of trained rounds, which changes no result."""
        return given | {"store": {"path": str(self.folder / "store")} | given.get("store", {})}

    def write_input(self, entry: Entry) -> Path:
        """Write the input of a run beside its results, for `hpctrip run`. Raises InputError if that is impossible."""
        path = self.results(entry.identity).with_suffix(".toml")
        replace_file(path, tomli_w.dumps(self.tables(entry.run_input.tables)).encode())
        return path

    def from_ledger(self, entry: Entry, row: Mapping[str, Any]) -> RunState | None:
        """Status of a run by its row in a ledger, that of a finished run, without reading its results; None unless the
        row names the present state of its file."""
        if not row["file_state"]:
            return None
        with suppress(InputError):
            file, imported = self.results(entry.identity), False
            if not (state := file_state(file)):
                file, imported = self.imported(entry.identity), True
                state = file_state(file)
            if state == row["file_state"]:
                return RunState(
                    entry, RunStatus.FINISHED, row["reason"], file=file, imported=imported, row=row
                )
        return None

    def inspect(self, entry: Entry) -> RunState:
        """Derive the current status of a run from its files and its lock."""
        file, elsewhere = self.results(entry.identity), self.imported(entry.identity)
        was_held = is_held(file)  # it may end while its files are read, which then are from before its end
        has_checkpoint = any(path.exists() for path in generations(file))
        job = self.job(entry.identity)
        failure = job.reason if job.state == RunStatus.FAILED else ""
        try:
            run = self._rounds(file)
            keys = differences(run, entry) if run else ""
            wrong = f"is of another input ({keys})" if keys else ""
        except InputError as error:
            run, wrong = None, error.faults[0].problem
            if has_checkpoint:  # the results are written again from it
                status = RunStatus.FAILED if failure else RunStatus.INTERRUPTED
                return RunState(entry, status, failure or f"{file}: {wrong}", file=file)
        if wrong:
            reason = f"{file}: {wrong}; remove it, and the run is made again"
            return RunState(entry, RunStatus.FAILED, reason, file=file, blocks_run=True)
        stop_reason = run.meta["stop_reason"] if run else ""
        if run and run.status == RunStatus.FINISHED:
            return RunState(entry, RunStatus.FINISHED, stop_reason, run, file, job=job)
        if elsewhere.exists():
            try:
                run = read_imported(elsewhere, entry)
            except InputError as error:
                return RunState(
                    entry, RunStatus.FAILED, str(error.faults[0]), file=elsewhere, blocks_run=True
                )
            return RunState(entry, RunStatus.FINISHED, run.meta["stop_reason"], run, elsewhere, imported=True)
        known = RunState(entry, RunStatus.PLANNED, "", run, file, job=job)
        if was_held or is_held(file):
            return replace(known, status=RunStatus.RUNNING)
        if job.state == RunStatus.QUEUED and job.job:
            return replace(known, status=RunStatus.QUEUED, reason=f"submitted as {job.job}")
        if failure or (run and run.status == RunStatus.FAILED):
            return replace(known, status=RunStatus.FAILED, reason=failure or stop_reason)
        if run or has_checkpoint:
            last = len(run.rounds) if run else job.round
            lost = f"its process died after round {last}" if job.state == RunStatus.RUNNING else ""
            return replace(known, status=RunStatus.INTERRUPTED, reason=stop_reason or lost)
        return RunState(entry, RunStatus.PLANNED)

    def _rounds(self, file: Path) -> Run | None:
        """Read a results file, from memory if it has not changed. None if it does not exist. Raises InputError."""
        if not (state := file_state(file)):
            return None
        if self._read.get(file, ("",))[0] != state:
            run = open_run(file)
            parts = {name: getattr(run, name).iloc[:0].copy() for name in ("sites", "cohorts", "candidates")}
            self._read[file] = state, replace(run, **parts)
        return self._read[file][1]


def file_state(file: Path) -> str:
    """Time of the last change and size of a file; empty if it does not exist. Raises InputError."""
    try:
        stat = os.stat(file)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise InputError(str(file), f"cannot be read ({error.strerror})", "remove it") from None
    return f"{stat.st_mtime_ns} {stat.st_size}"


def differences(run: Run, entry: Entry) -> str:
    """Comma-separated names of the keys, files and plug-ins in which a results file differs from the run, or empty.

    A key that is `Added`, at its default in the run, may be absent from the file, which can be older than the key.
    """
    named = [source.key for source in entry.sources if source.key not in entry.settings]
    recorded = without_folders({key: value for key, value in run.settings.items() if key not in named})
    keys = differing([recorded, entry.settings])
    if keys:
        required = without(entry.settings, added_keys(entry.run_input.experiment))
        keys = [key for key in keys if key in recorded or key in required]
    read = read_sources(run.meta["sources"])
    code = [{s.digest for s in sources if s.key == PLUGINS} for sources in (read, entry.sources)]
    files = [
        pair[0].key for pair in changed_sources(read, entry.sources) if not pair[0].key.startswith(WORKLOAD)
    ]
    return ", ".join([*keys, *files, *([PLUGINS] if code[0] != code[1] else [])])
