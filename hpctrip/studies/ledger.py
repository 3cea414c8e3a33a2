"""Ledger of a study: a CSV table with one row per run, derived from the run store.

It is written as a whole when a study starts and ends; while it is executed, rows of runs that have ended are appended,
and the last row of a run counts. It is for people and for other machines (`--import`). hpctrip itself relies on its
column `earlier` only: the identity under which a run of the same name was last finished, which shows that a run is
stale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pandas as pd

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import append_to, check_folder, replace_file, unwritable
from hpctrip.record.merge import csv_bytes
from hpctrip.record.reader import Run
from hpctrip.studies.file import COLUMNS, LAST_COLUMNS
from hpctrip.studies.grid import Entry
from hpctrip.studies.run_store import RunState, RunStatus, RunStore


class Ledger:
    """Ledger of one study, in the folder of the study."""

    def __init__(self, name: str, entries: Sequence[Entry], runs: RunStore):
        self.name, self.entries, self.runs = name, list(entries), runs
        self.folder = runs.folder / name
        self._entries = {entry.identity: entry for entry in entries}
        self._earlier = _earlier(self.path)

    @property
    def path(self) -> Path:
        """Path of the table."""
        return self.folder / "ledger.csv"

    def lines(self) -> list[RunState]:
        """Current status of all runs."""
        return [self.line(entry) for entry in self.entries]

    def line(self, entry: Entry) -> RunState:
        """Current status of one run."""
        state, earlier = self.runs.inspect(entry), self._earlier.get(entry.name, "")
        if state.finished:
            return replace(state, earlier=entry.identity)
        if state.status == RunStatus.PLANNED and earlier not in ("", entry.identity):
            reason = "finished before with another input"
            return replace(state, status=RunStatus.STALE, reason=reason, earlier=earlier)
        return replace(state, earlier=earlier)

    def write(self) -> list[RunState]:
        """Write the table. Returns its lines."""
        with self._lock():
            return self._write()

    def append(self, identity: str) -> None:
        """Append the current row of the run with this identity, if the study has it."""
        entry = self._entries.get(identity)
        if entry is None:
            return
        with self._lock():
            table = pd.DataFrame([_row(self.line(entry), self.runs.folder)])
            header, _, row = csv_bytes(table).partition(b"\n")
            with append_to(self.path) as file:
                file.seek(0)
                has_header = file.readline().rstrip(b"\n") == header
                if has_header:
                    file.write(row)
            if not has_header:  # a new ledger, or that of other axes
                self._write()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        path = Path(f"{self.path}.lock")
        lock = filelock.FileLock(path)
        check_folder(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            acquired = lock.acquire()
        except OSError as error:
            raise unwritable(path, error) from error
        with acquired:
            yield

    def _write(self) -> list[RunState]:
        self._earlier |= _earlier(self.path)  # another process may have finished runs
        lines = self.lines()
        rows = [_row(line, self.runs.folder) for line in lines]
        replace_file(self.path, csv_bytes(pd.DataFrame(rows)))
        return lines


def _row(line: RunState, folder: Path) -> dict[str, Any]:
    entry, run = line.entry, line.run
    numbers: dict[str, Any] = {"rounds": "", "clock_s": math.nan, "accuracy": math.nan, "wall_s": math.nan}
    if run is not None and len(run.rounds):
        numbers = {
            "rounds": str(len(run.rounds)),
            "clock_s": run.time_to_accuracy_s,
            "accuracy": float(run.rounds["accuracy"].max()),
            "wall_s": wall_s(run),
        }
    values = numbers | {
        "run": entry.name,
        "seed": entry.seed,
        "identity": entry.identity,
        "status": line.status,
        "digest": run.meta["params_digest"] if run else "",
        "synthetic": synthetic(run) if run else "",
        "made_with": made_with(run) if run else "",
        "reason": line.reason,
        "file": str(line.file.relative_to(folder)) if line.file else "",
        "earlier": line.earlier,
    }
    axes = dict(entry.choices)
    return {name: (values | axes)[name] for name in (*COLUMNS[:2], *axes, *COLUMNS[2:], *LAST_COLUMNS)}


def wall_s(run: Run) -> float:
    """Sum of the wall times of all rounds, in seconds."""
    return float(run.meta["wall_s"] if "wall_s" in run.meta else run.rounds["wall_s"].sum())


def synthetic(run: Run) -> str:
    """The synthetic inputs of a run: "data, power", one of them, or empty."""
    return ", ".join(name for name in ("data", "power") if run.meta[f"synthetic_{name}"])


def made_with(run: Run) -> str:
    """The version and commit of hpctrip that made a run."""
    if "made_with" in run.meta:
        return str(run.meta["made_with"])
    commit = f" {run.meta['git_commit'][:12]}" if run.meta["git_commit"] else ""
    return f"hpctrip {run.meta['hpctrip_version']}{commit}"


def _earlier(path: Path) -> Mapping[str, str]:
    """{run: identity under which it was last finished} of a ledger; empty if it cannot be read."""
    try:
        table = read_table(path)
        table.require("run", "earlier")
    except InputError:
        return {}
    return dict(zip(table.columns["run"], table.columns["earlier"], strict=True))
