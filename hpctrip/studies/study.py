"""One study: its grid of runs over the run store, its ledger, and the tables and figures at its end.

The ledger is a CSV table with one row per run, derived from the run store, written when a study starts and ends.
It is for people and for other machines (`study import`). hpctrip itself reads two things in it. The row of a finished
run stands for its results, in any study of the folder, while their file has the time and size in `file_state`, so that
it need not be opened. `earlier` is the identity under which a run of the same name was last finished, which shows that
a run is stale.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import check_folder, replace_file
from hpctrip.config.identity import VERSION
from hpctrip.config.inputs import resolved
from hpctrip.record.merge import csv_bytes
from hpctrip.record.reader import Run, open_run
from hpctrip.studies.file import COLUMNS, LAST_COLUMNS, Picture, StudyFile
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import TOTALS, pretended, read_imported, run_of_row
from hpctrip.studies.run_store import RunState, RunStatus, RunStore, file_state
from hpctrip.studies.tables import latex_lines, read_tables, results_of, write_tables

if TYPE_CHECKING:
    from hpctrip.figures.common.plot import Drawing


@dataclass(frozen=True)
class Study:
    """A study file with its grid of runs."""

    file: StudyFile
    name: str
    """Path of its folder in that of the run store."""
    entries: list[Entry]
    runs: RunStore
    sweeps: tuple[list[str], ...] = ()
    """Of a sweep, its lines and those of the earlier ones whose rows it keeps."""
    asked: frozenset[str] | None = None
    """Of a sweep, the identities of the runs that it asks for; None: all."""

    @property
    def title(self) -> str:
        """Title of the study; default: its name."""
        return self.file.title or self.file.name

    @property
    def folder(self) -> Path:
        """Folder of its ledger, tables and figures."""
        return self.runs.folder / self.name

    @property
    def sweeps_file(self) -> Path:
        """Path of the file with `sweeps`."""
        return self.folder / "sweeps.jsonl"

    @property
    def ledger(self) -> Path:
        """Path of the ledger."""
        return self.folder / "ledger.csv"

    def lines(self, entries: Iterable[Entry] | None = None) -> list[RunState]:
        """Current status of all runs, or of some; STALE and `earlier` come from the ledger, and the results of
        unchanged files from it or from those of other studies in the folder."""
        earlier, rows = _read_ledger(self.ledger)
        others = [name for entry in self.entries if (name := entry.identity) not in rows]
        if any(self.runs.results(name).exists() for name in others):
            for pattern in ("*/ledger.csv", "*/*/ledger.csv"):
                for ledger in self.runs.folder.glob(pattern):
                    rows = {**_read_ledger(ledger)[1], **rows}
        states = []
        for entry in self.entries if entries is None else entries:
            row = rows.get(entry.identity)
            states.append((row and self.runs.from_ledger(entry, row)) or self.runs.inspect(entry))
        return [_with_earlier(state, earlier.get(state.entry.name, "")) for state in states]

    def write_ledger(self) -> list[RunState]:
        """Write the ledger. Returns its lines."""
        check_folder(self.folder)
        lines = self.lines()
        table = pd.DataFrame([_row(line, self.runs.folder) for line in lines])
        replace_file(self.ledger, csv_bytes(table))
        if self.sweeps:
            replace_file(self.sweeps_file, "".join(f"{json.dumps(each)}\n" for each in self.sweeps).encode())
        return lines

    def conclude(self, latex: bool = False) -> list[str]:
        """Write the ledger, and the tables and figures of the finished runs; nothing is trained. Returns the lines to
        print; with `latex`, these are the table alone."""
        known = {} if self.file.figure else read_tables(self.folder)  # figures are of whole runs
        lines = [_with_run(line, known) if line.finished else line for line in self.write_ledger()]
        runs = [line.run for line in lines if line.finished]
        facts = {
            "study": self.file.name,
            "folder": self.name,
            "title": self.title,
            "overlays": ", ".join(Path(file).name for file in self.file.overlays),
        }
        report = write_tables(self.folder, facts, lines)
        names = [picture.name for picture in self.file.figure]
        for number, picture in enumerate(self.file.figure if runs else ()):
            earlier = names[:number].count(picture.name)
            try:
                report += self._draw(picture, runs, f"{picture.name}{f'_{earlier + 1}' if earlier else ''}")
            except InputError as error:  # too few runs, or imported ones without the tables that it needs
                report.append(f"figure {picture.name} not drawn: {error.faults[0]}")
        return latex_lines(self.title, lines) if latex else report

    def undrawable(self) -> Iterator[str]:
        """A line for each figure that cannot be drawn of such runs, whatever they come to."""
        if not self.file.figure:
            return
        runs = [as_in_study(pretended(entry, number), entry) for number, entry in enumerate(self.entries)]
        for picture in self.file.figure:
            try:
                with redirect_stderr(StringIO()), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._drawing(picture, runs)
            except InputError as error:
                yield f"figure {picture.name} cannot be drawn of these runs: {error.faults[0]}"
            except Exception:  # it needs more than such runs have
                continue

    def draw(self, picture: Picture) -> list[str]:
        """Draw a figure of the finished runs. Returns the lines to print. Raises InputError where that is
        impossible."""
        if not (runs := [opened(line).run for line in self.lines() if line.finished]):
            raise InputError(f"study {self.name}", "has no finished run to draw", "make its runs first")
        return self._draw(picture, runs, picture.stem)

    def _draw(self, picture: Picture, runs: list[Run | None], stem: str) -> list[str]:
        drawing = self._drawing(picture, runs)
        files = [self.folder / "figures" / f"{stem}.{form}" for form in picture.format]
        saved = [line for file in files for line in drawing.write(file, overwrite=True)]
        return [*drawing.lines, *dict.fromkeys(saved)]  # the numbers once

    def _drawing(self, picture: Picture, runs: list[Run | None]) -> Drawing:
        from hpctrip.figures import FIGURES  # heavy

        draw = FIGURES[picture.name]
        assert draw.source.of_study is not None  # the study file was checked
        return draw(draw.source.of_study(runs), **picture.options())


def _read_ledger(ledger: Path) -> tuple[Mapping[str, str], Mapping[str, Mapping[str, Any]]]:
    """({run: identity under which it was last finished}, {identity: its last row, if that is finished}) of a ledger;
    empty if it cannot be read, without rows if it lacks columns of today."""
    earlier: Mapping[str, str] = {}
    with suppress(InputError):
        table = read_table(ledger)
        earlier = dict(zip(table.column("run"), table.column("earlier"), strict=True))
        table.require(*COLUMNS, *LAST_COLUMNS)
        columns = table.columns | {name: table.numbers(name, may_lack=True) for name in _NUMBERS}
        rows = zip(*(list(values) for values in columns.values()), strict=True)
        last = {row["identity"]: row for row in (dict(zip(columns, row, strict=True)) for row in rows)}
        return earlier, {name: row for name, row in last.items() if row["status"] == RunStatus.FINISHED}
    return earlier, {}


def _with_earlier(state: RunState, earlier: str) -> RunState:
    """The status of an unfinished run that was last finished under the identity `earlier`; empty: it never was."""
    if state.finished:
        return state
    if state.status == RunStatus.PLANNED and earlier not in ("", state.entry.identity):
        reason = "finished before with another input"
        return replace(state, status=RunStatus.STALE, reason=reason, earlier=earlier)
    return replace(state, earlier=earlier)


_RESULTS = {
    "rounds": "num_rounds",
    "clock_s": "time_to_accuracy_s",
    "accuracy": "best_accuracy",
    "digest": "params_digest",
    **{name: name for name in ("wall_s", *TOTALS, "synthetic", "made_with")},
}
"""{column of the ledger: its name among `results_of` a run}."""
_NUMBERS = ("clock_s", "accuracy", "wall_s", *TOTALS)
"""Columns of results that are numbers; empty where there is none."""


def _row(line: RunState, folder: Path) -> dict[str, Any]:
    entry, axes = line.entry, line.entry.axes
    if line.row is not None:
        results = {name: line.row[name] for name in _RESULTS}
    else:
        all_results = results_of(line.run)
        results = {name: all_results[key] for name, key in _RESULTS.items()}
    values = results | {
        "run": entry.name,
        "seed": entry.seed,
        "identity": entry.identity,
        "status": line.status,
        "target_accuracy": entry.run_input.experiment.stop.target,
        "identity_version": VERSION,
        "rules": entry.rules,
        "reason": line.reason,
        "warnings": line.row["warnings"] if line.row is not None else " | ".join(line.job.warnings),
        "file": str(line.file.relative_to(folder)) if line.file else "",
        "file_state": file_state(line.file) if line.finished and line.file else "",
        "earlier": entry.identity if line.finished else line.earlier,
    }
    return {name: (values | axes)[name] for name in (*COLUMNS[:2], *axes, *COLUMNS[2:], *LAST_COLUMNS)}


def _with_run(line: RunState, known: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]]) -> RunState:
    """The status of a finished run with its rounds and sites: from the last tables where the ledger stands for its
    file, so that this need not be opened."""
    curve, sites = known.get(line.entry.identity, (None, pd.DataFrame()))
    if line.row is not None and curve is not None and (line.imported or len(sites)):
        assert line.file is not None
        with suppress(InputError, ValueError, LookupError):
            run = run_of_row(line.file, line.entry, line.row, curve)
            return replace(line, run=as_in_study(replace(run, sites=sites), line.entry))
    return opened(line)


def opened(line: RunState) -> RunState:
    """The status of a finished run with all its tables, and with the study's label and input."""
    assert line.file is not None
    run = read_imported(line.file, line.entry) if line.imported else open_run(line.file)
    return replace(line, run=as_in_study(run, line.entry))


def as_in_study(run: Run, entry: Entry) -> Run:
    """The run with the study's label, world and input. Those in its file may differ: another study may have made it,
    before a key was added to hpctrip, or with data in another place."""
    told = {"label": entry.label or "", "world": entry.world}
    meta, run_input = run.meta | told, resolved(entry.run_input.experiment)
    return replace(run, meta=meta, input=run_input)
