"""One study: its grid of runs over the run store, its ledger, and the tables and figures at its end.

The ledger is a CSV table with one row per run, derived from the run store. It is written as a whole when a study starts
and ends; while it is executed, rows of runs that have ended are appended, and the last row of a run counts. It is for
people and for other machines (`--import`). hpctrip itself relies on its column `earlier` only: the identity under which
a run of the same name was last finished, which shows that a run is stale.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import append_to, check_folder, replace_file
from hpctrip.config.identity import VERSION
from hpctrip.config.inputs import resolved
from hpctrip.record.merge import csv_bytes
from hpctrip.record.reader import Run, open_run
from hpctrip.studies.file import COLUMNS, LAST_COLUMNS, Picture, StudyFile
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import TOTALS
from hpctrip.studies.run_store import RunState, RunStatus, RunStore
from hpctrip.studies.tables import latex_lines, results_of, write_tables


@dataclass(frozen=True)
class Study:
    """A study file with its grid of runs."""

    file: StudyFile
    name: str
    """Path of its folder in that of the run store."""
    entries: list[Entry]
    runs: RunStore

    @property
    def title(self) -> str:
        """Title of the study; default: its name."""
        return self.file.title or self.file.name

    @property
    def folder(self) -> Path:
        """Folder of its ledger, tables and figures."""
        return self.runs.folder / self.name

    @property
    def ledger(self) -> Path:
        """Path of the ledger."""
        return self.folder / "ledger.csv"

    def lines(self) -> list[RunState]:
        """Current status of all runs."""
        return self._lines(self.entries)

    def write_ledger(self) -> list[RunState]:
        """Write the ledger. Returns its lines."""
        with self._ledger_lock():
            return self._write_ledger()

    def append_to_ledger(self, identity: str) -> None:
        """Append the current row of the run with this identity, if the study has it."""
        entries = [entry for entry in self.entries if entry.identity == identity]
        if not entries:
            return
        with self._ledger_lock():
            header, _, row = self._csv(self._lines(entries)).partition(b"\n")
            with append_to(self.ledger) as file:
                file.seek(0)
                has_header = file.readline().rstrip(b"\n") == header
                if has_header:
                    file.write(row)
            if not has_header:  # a new ledger, or that of other axes
                self._write_ledger()

    def finished(self, lines: Iterable[RunState]) -> dict[str, Run]:
        """{identity: run} of the finished runs, as the study has them."""
        return {
            line.entry.identity: as_in_study(line.run if line.imported else open_run(line.file), line.entry)
            for line in lines
            if line.finished
        }

    def conclude(self, latex: bool = False) -> list[str]:
        """Write the ledger, and the tables and figures of the finished runs. Returns the lines to print; with `latex`,
        these are the table alone."""
        lines = self.write_ledger()
        runs = self.finished(lines)
        facts = {
            "study": self.file.name,
            "folder": self.name,
            "title": self.title,
            "overlays": ", ".join(Path(file).name for file in self.file.overlays),
        }
        report = write_tables(self.folder, facts, lines, runs)
        names = [picture.name for picture in self.file.figure]
        for number, picture in enumerate(self.file.figure if runs else ()):
            earlier = names[:number].count(picture.name)
            try:
                report += self._draw(picture, runs, f"{picture.name}{f'_{earlier + 1}' if earlier else ''}")
            except InputError as error:  # too few runs, or imported ones without the tables that it needs
                report.append(f"figure {picture.name} not drawn: {error.faults[0]}")
        return latex_lines(self.title, lines) if latex else report

    def draw(self, picture: Picture) -> list[str]:
        """Draw a figure of the finished runs. Returns the lines to print. Raises InputError where that is
        impossible."""
        if not (runs := self.finished(self.lines())):
            raise InputError(f"study {self.name}", "has no finished run to draw", "make its runs first")
        return self._draw(picture, runs, picture.stem)

    def _draw(self, picture: Picture, runs: Mapping[str, Run], stem: str) -> list[str]:
        from hpctrip.figures import FIGURES  # heavy

        draw = FIGURES[picture.name]
        assert draw.source.of_study is not None  # the study file was checked
        drawing = draw(draw.source.of_study(list(runs.values())), **picture.options())
        files = [self.folder / "figures" / f"{stem}.{form}" for form in picture.format]
        saved = [line for file in files for line in drawing.save(file, overwrite=True)]
        return [*drawing.lines, *dict.fromkeys(saved)]  # the numbers once

    def _lines(self, entries: Iterable[Entry]) -> list[RunState]:
        """Current status of these runs; STALE and `earlier` come from the ledger."""
        earlier = _earlier(self.ledger)
        return [_with_earlier(self.runs.inspect(entry), earlier.get(entry.name, "")) for entry in entries]

    def _csv(self, lines: Iterable[RunState]) -> bytes:
        return csv_bytes(pd.DataFrame([_row(line, self.runs.folder) for line in lines]))

    def _write_ledger(self) -> list[RunState]:
        lines = self.lines()
        replace_file(self.ledger, self._csv(lines))
        return lines

    @contextmanager
    def _ledger_lock(self) -> Iterator[None]:
        check_folder(self.folder)
        with append_to(f"{self.ledger}.lock") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _earlier(ledger: Path) -> Mapping[str, str]:
    """{run: identity under which it was last finished} of a ledger; empty if it cannot be read."""
    try:
        table = read_table(ledger)
        return dict(zip(table.column("run"), table.column("earlier"), strict=True))
    except InputError:
        return {}


def _with_earlier(state: RunState, earlier: str) -> RunState:
    """The status of a run that was last finished under the identity `earlier`; empty: it never was."""
    if state.finished:
        return replace(state, earlier=state.entry.identity)
    if state.status == RunStatus.PLANNED and earlier not in ("", state.entry.identity):
        reason = "finished before with another input"
        return replace(state, status=RunStatus.STALE, reason=reason, earlier=earlier)
    return replace(state, earlier=earlier)


def _row(line: RunState, folder: Path) -> dict[str, Any]:
    entry, results, axes = line.entry, results_of(line.run), dict(line.entry.choices)
    values = {
        "run": entry.name,
        "seed": entry.seed,
        "identity": entry.identity,
        "status": line.status,
        "rounds": results["num_rounds"],
        "clock_s": results["time_to_accuracy_s"],
        "accuracy": results["best_accuracy"],
        "digest": results["params_digest"],
        "wall_s": results["wall_s"],
        "target_accuracy": entry.run_input.experiment.stop.target_accuracy,
        **{name: results[name] for name in TOTALS},
        "synthetic": results["synthetic"],
        "made_with": results["made_with"],
        "identity_version": VERSION,
        "rules": entry.rules,
        "reason": line.reason,
        "file": str(line.file.relative_to(folder)) if line.file else "",
        "earlier": line.earlier,
    }
    return {name: (values | axes)[name] for name in (*COLUMNS[:2], *axes, *COLUMNS[2:], *LAST_COLUMNS)}


def as_in_study(run: Run, entry: Entry) -> Run:
    """The run with the study's label and input. Those in its file may differ: another study may have made it, before a
    key was added to hpctrip, or with data in another place."""
    meta, run_input = run.meta | {"label": entry.label or ""}, resolved(entry.run_input.experiment)
    return replace(run, meta=meta, input=run_input)
