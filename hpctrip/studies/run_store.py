"""The runs of all studies of one folder, each under its identity, and what their files prove about them.

    DIR/runs/IDENTITY.h5     results; while it runs, lock and checkpoints beside them, and its input where ranks read it
    DIR/runs/IDENTITY.csv    what is known of a run that was made elsewhere and imported
    DIR/store/               what they trained, for runs of the same learning under another clock (`[store]`)
    DIR/logs/IDENTITY.log    what a run printed, while it is not finished
    DIR/logs/IDENTITY.failed why it failed, in a line, until it is started again

Nothing here is remembered: a status follows from the files and the locks as they are, so no kill can make it wrong.
"""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, replace
from pathlib import Path

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_folder, read_file, remove_file, replace_file
from hpctrip.base.text import printable
from hpctrip.config.identity import chosen, differing
from hpctrip.config.inputs import Tables
from hpctrip.config.sources import PLUGINS, read_sources
from hpctrip.config.sources import differing as differing_sources
from hpctrip.record.checkpoint import generations
from hpctrip.record.lock import is_held
from hpctrip.record.reader import Run, open_run
from hpctrip.runner.provenance import WORKLOAD
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import read_imported


class RunStatus(enum.StrEnum):
    """State of a run, derived from its files and locks; also how a worker's job ended."""

    FINISHED = "finished"
    """The run reached one of its stop rules."""
    RUNNING = "running"
    """A process holds the lock of the run."""
    INTERRUPTED = "interrupted"
    """The run has started and can be resumed."""
    FAILED = "failed"
    PLANNED = "planned"
    """The run has not started."""
    STALE = "stale"
    """Planned, while a run of the same name finished with another input."""
    HELD = "held"
    """Of a job only: another process holds the lock of the run."""


@dataclass(frozen=True)
class StoredRun:
    """What is known of a run."""

    status: RunStatus
    reason: str = ""
    """Why it stopped, or what is wrong with its file."""
    run: Run | None = None
    """Its rounds, as far as they are recorded; without sites, cohorts and candidates."""
    file: Path | None = None
    """Where that was read."""
    imported: bool = False
    """It was made elsewhere."""
    blocks_run: bool = False
    """Its file is damaged or another run's, so that it cannot be made."""


class RunStore:
    """The runs of a folder. Raises InputError where it cannot be one."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        for name in ("runs", "store", "logs"):
            check_folder(self.folder / name)
        self._read: dict[Path, tuple[tuple[int, ...], Run]] = {}

    def results(self, identity: str) -> Path:
        """The results file of a run."""
        return self.folder / "runs" / f"{identity}.h5"

    def imported(self, identity: str) -> Path:
        """What is known of a run that was made elsewhere."""
        return self.folder / "runs" / f"{identity}.csv"

    def log(self, identity: str) -> Path:
        """What a run printed."""
        return self.folder / "logs" / f"{identity}.log"

    def failure(self, identity: str) -> Path:
        """Why a run failed."""
        return self.log(identity).with_suffix(".failed")

    def record_failure(self, identity: str, reason: str) -> None:
        """A run failed: keep why, in one line."""
        replace_file(self.failure(identity), f"{' | '.join(reason.splitlines())}\n".encode())

    def clear_failure(self, identity: str) -> None:
        """A run is started again."""
        remove_file(self.failure(identity))

    def remove_leftovers(self, identity: str) -> None:
        """A run is finished: what it needed to go on is removed. It never will, as stop rules are part of its
        identity."""
        results = self.results(identity)
        for path in (self.log(identity), results.with_suffix(".toml"), *generations(results)):
            remove_file(path)

    def input_tables(self, entry: Entry) -> Tables:
        """The input that a run is started with: what runs train, they keep for each other (`[store]`, which changes no
        result), unless the study says where."""
        own = entry.run_input.tables.get("store", {})
        return entry.run_input.tables | {"store": {"path": str(self.folder / "store")} | own}

    def inspect(self, entry: Entry) -> StoredRun:
        """What is known of a run now."""
        file = self.results(entry.identity)
        try:
            run = self._rounds(file)
            wrong = unlike(run, entry) if run else ""
            wrong = f"is of another input ({wrong})" if wrong else ""
        except InputError as error:
            run, wrong = None, error.faults[0].problem
            if any(path.exists() for path in generations(file)):  # from which it is written anew
                said = _text(self.failure(entry.identity))
                status = RunStatus.FAILED if said else RunStatus.INTERRUPTED
                return StoredRun(status, said or f"{file}: {wrong}", file=file)
        if wrong:
            reason = f"{file}: {wrong}; remove it, and the run is made again"
            return StoredRun(RunStatus.FAILED, reason, file=file, blocks_run=True)
        if run and run.status == RunStatus.FINISHED:
            return StoredRun(RunStatus.FINISHED, run.meta["stop_reason"], run, file)
        elsewhere = self.imported(entry.identity)
        if elsewhere.exists():
            run = read_imported(elsewhere, entry)
            return StoredRun(RunStatus.FINISHED, run.meta["stop_reason"], run, elsewhere, imported=True)
        if is_held(file):
            return StoredRun(RunStatus.RUNNING, "", run, file)
        if said := _text(self.failure(entry.identity)):
            return StoredRun(RunStatus.FAILED, said, run, file)
        if run is None and not any(path.exists() for path in generations(file)):
            return StoredRun(RunStatus.PLANNED)
        if run and run.status == RunStatus.FAILED:
            return StoredRun(RunStatus.FAILED, run.meta["stop_reason"], run, file)
        return StoredRun(RunStatus.INTERRUPTED, run.meta["stop_reason"] if run else "", run, file)

    def read(self, entry: Entry) -> Run:
        """A finished run with all that its file holds. Raises InputError where that cannot be read."""
        known = self.inspect(entry)
        return known.run if known.imported and known.run else open_run(self.results(entry.identity))

    def _rounds(self, file: Path) -> Run | None:
        """The results file, read again only where it has changed; None where there is none. Raises InputError."""
        try:
            found = os.stat(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(str(file), f"cannot be read ({error.strerror})", "remove it") from None
        state = (found.st_mtime_ns, found.st_size, found.st_ino)
        if self._read.get(file, ((),))[0] != state:
            run = open_run(file)
            parts = {name: getattr(run, name).iloc[:0].copy() for name in ("sites", "cohorts", "candidates")}
            self._read[file] = state, replace(run, **parts)
        return self._read[file][1]


def _text(path: Path) -> str:
    """What a file of ours says, or what is wrong with it; empty where there is none."""
    if not os.path.lexists(path):
        return ""
    try:
        said = read_file(path).decode(errors="replace")
    except InputError as error:
        said = str(error)
    return printable(said.strip(), 1000)


def unlike(run: Run, entry: Entry) -> str:
    """In what a results file is not that of the run, by its input, its plug-ins and the files of its world; empty where
    it is. A key that the file does not know was added since: the run has it where it stays at its default."""
    named = [source.key for source in entry.sources]
    recorded = {key: value for key, value in run.settings.items() if key not in named}
    keys = differing([recorded, entry.settings])
    if keys:
        given = chosen(entry.run_input.experiment)
        keys = [key for key in keys if key in recorded or key in given]
    read = read_sources(run.meta["sources"], str(run.path))
    code = [{s.digest for s in sources if s.key == PLUGINS} for sources in (read, entry.sources)]
    files = [
        pair[0].key for pair in differing_sources(read, entry.sources) if not pair[0].key.startswith(WORKLOAD)
    ]
    return ", ".join([*keys, *files, *([PLUGINS] if code[0] != code[1] else [])])
