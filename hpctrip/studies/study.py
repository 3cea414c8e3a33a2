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
from collections.abc import Collection, Iterable, Iterator, Mapping
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
from hpctrip.record.formats import csv_bytes
from hpctrip.record.reader import Run, open_run
from hpctrip.record.site_report import by_site
from hpctrip.runner.job_status import RunStatus
from hpctrip.sim.quantities import ENERGY
from hpctrip.studies.file import COLUMNS, LAST_COLUMNS, Picture, StudyFile
from hpctrip.studies.grid import Entry
from hpctrip.studies.imported import (
    CURVE_COLUMNS,
    curve_of,
    number_text,
    pretended,
    read_imported,
    run_of_row,
)
from hpctrip.studies.run_store import RunState, RunStore, file_state
from hpctrip.studies.tables import LEDGER_RESULTS, NUMBERS, RunRows, comparison, results_of, write_tables

if TYPE_CHECKING:
    from hpctrip.figures.common.plot import Drawing

Row = Mapping[str, Any]
"""A row of a ledger, by column."""


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
    command: str = ""
    """Of a sweep, the command that makes its tables, without --out; empty: there is none."""

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
        """Path of the file with `sweeps` and, last, `command`."""
        return self.folder / "sweeps.jsonl"

    @property
    def ledger(self) -> Path:
        """Path of the ledger."""
        return self.folder / "ledger.csv"

    def lines(self, entries: Iterable[Entry] | None = None) -> list[RunState]:
        """Current status of all runs, or of some; STALE and `earlier` come from the ledger, and the results of
        unchanged files from it or from those of other studies in the folder."""
        last, rows = _read_ledger(self.ledger)
        begun = self.runs.begun()
        if begun.intersection(entry.identity for entry in self.entries).difference(rows):
            for pattern in ("*/ledger.csv", "*/*/ledger.csv"):
                for ledger in self.runs.folder.glob(pattern):
                    rows = {**_read_ledger(ledger)[1], **rows}
        states = []
        for entry in self.entries if entries is None else entries:
            row = rows.get(entry.identity)
            if entry.identity not in begun:
                states.append(RunState(entry, RunStatus.PLANNED))
            else:
                states.append((row and self.runs.from_ledger(entry, row)) or self.runs.inspect(entry))
        return [_with_earlier(state, last.get(state.entry.name, {})) for state in states]

    def write_ledger(self) -> list[RunState]:
        """Write the ledger. Returns its lines."""
        check_folder(self.folder)
        lines = self.lines()
        table = pd.DataFrame([_row(line, self.runs.folder) for line in lines])
        replace_file(self.ledger, csv_bytes(table))
        if self.sweeps:
            records = (f"{json.dumps(each)}\n" for each in (*self.sweeps, self.command))
            replace_file(self.sweeps_file, "".join(records).encode())
        return lines

    def conclude(self, latex: bool = False, asked: Collection[str] | None = None) -> list[str]:
        """Write the ledger, and the tables and figures of the finished runs; nothing is trained. Returns the lines to
        print, as `write_tables` of `asked`; with `latex`, these are the table alone. Without a finished run, what was
        there stays, and there are no lines."""
        lines = self.write_ledger()
        if not (finished := [line for line in lines if line.finished]):
            return []
        curves = RunRows(self.folder / "curves.csv", CURVE_COLUMNS)
        sites = RunRows(self.folder / "sites.csv", ["site", "rounds_in_cohort", ENERGY.total])
        for line in finished:
            if not _has_rows(line, curves, sites):
                run = opened(line)
                curves.put(line.entry.identity, run.rounds[[*CURVE_COLUMNS]])
                sites.put(line.entry.identity, run.sites if run.sites.empty else by_site(run))  # if imported
        facts = {
            "study": self.file.name,
            "folder": self.name,
            "title": self.title,
            "overlays": ", ".join(Path(file).name for file in self.file.overlays),
        }
        report = write_tables(self.folder, facts, lines, [curves, sites], asked)
        if self.file.figure:
            report += self._draw_all([self._run_for(line, curves) for line in finished])
        return comparison(self.title, lines, latex) if latex else report

    def compared_at(self, target: float, latex: bool = False) -> list[str]:
        """The lines of the comparison of the finished runs at another target accuracy, by their recorded curves;
        nothing is written."""
        lines = [_at_target(line, target) for line in self.lines() if line.finished]
        return comparison(f"{self.title}, at an accuracy of {target:g}", lines, latex) if lines else []

    def _draw_all(self, runs: list[Run]) -> Iterator[str]:
        """Draw the study's figures. Yields the lines to print."""
        names = [picture.name for picture in self.file.figure]
        for number, picture in enumerate(self.file.figure):
            earlier = names[:number].count(picture.name)
            try:
                yield f"figure {picture.name}:"
                yield from self._draw(picture, runs, f"{picture.name}{f'_{earlier + 1}' if earlier else ''}")
            except InputError as error:  # too few runs, or imported ones without the tables that it needs
                yield f"figure {picture.name} not drawn: {error.faults[0]}"

    def _run_for(self, line: RunState, curves: RunRows) -> Run:
        """A finished run as its figures need it: where they need no more than its curve, from the last tables."""
        if line.row is None or any(picture.of_whole_runs for picture in self.file.figure):
            return opened(line)
        assert line.file is not None
        run = run_of_row(line.file, line.entry, line.row, curve_of(curves.of(line.entry.identity)))
        return as_in_study(run, line.entry)

    def warnings(self) -> Iterator[str]:
        """The warnings of the runs' inputs, each once, and a line for each figure that cannot be drawn of such runs,
        whatever they come to."""
        yield from dict.fromkeys(line for entry in self.entries for line in entry.run_input.warnings)
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
        if not (runs := [opened(line) for line in self.lines() if line.finished]):
            raise InputError(f"study {self.name}", "has no finished run to draw", "make its runs first")
        return self._draw(picture, runs, picture.stem)

    def _draw(self, picture: Picture, runs: list[Run], stem: str) -> list[str]:
        drawing = self._drawing(picture, runs)
        files = [self.folder / "figures" / f"{stem}.{form}" for form in picture.format]
        saved = [line for file in files for line in drawing.write(file, overwrite=True)]
        return [*drawing.lines, *dict.fromkeys(saved)]  # the numbers once

    def _drawing(self, picture: Picture, runs: list[Run]) -> Drawing:
        from hpctrip.figures import FIGURES  # heavy

        draw = FIGURES[picture.name]
        assert draw.source.of_study is not None  # the study file was checked
        return draw(draw.source.of_study(runs), **picture.options())


def _read_ledger(ledger: Path) -> tuple[Mapping[str, Row], Mapping[str, Row]]:
    """({run: its last row}, {identity: its last row, if that is finished}) of a ledger; empty if it cannot be read, the
    second also if it lacks columns of today."""
    by_run: Mapping[str, Row] = {}
    with suppress(InputError):
        table = read_table(ledger)
        table.require("run", "earlier")
        by_run = {row["run"]: row for row in _rows(table.columns)}
        table.require(*COLUMNS, *LAST_COLUMNS)
        numbers = [LEDGER_RESULTS[name] for name in NUMBERS]
        columns = table.columns | {name: table.numbers(name, may_lack=True) for name in numbers}
        last = {row["identity"]: row for row in _rows(columns)}
        return by_run, {name: row for name, row in last.items() if row["status"] == RunStatus.FINISHED}
    return by_run, {}


def _rows(columns: Mapping[str, Iterable[Any]]) -> Iterator[Row]:
    for values in zip(*(list(column) for column in columns.values()), strict=True):
        yield dict(zip(columns, values, strict=True))


def _with_earlier(state: RunState, row: Row) -> RunState:
    """The status of an unfinished run, where `row` is that of a run of its name in the ledger; empty: there is none."""
    if state.finished:
        return state
    earlier, before = row.get("earlier", ""), "finished before with another input"
    if state.status == RunStatus.PLANNED and earlier not in ("", state.entry.identity):
        if row.get("status") == RunStatus.STALE:  # the row has the rules of today
            before = row["reason"]
        elif how := state.entry.made_otherwise(row):
            before = f"finished before by other rules ({how})"
        return replace(state, status=RunStatus.STALE, reason=before, earlier=earlier)
    return replace(state, earlier=earlier)


def _row(line: RunState, folder: Path) -> dict[str, Any]:
    entry, axes = line.entry, line.entry.axes
    results = results_of(line)
    values = {column: results[name] for name, column in LEDGER_RESULTS.items()} | {
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


def _has_rows(line: RunState, curves: RunRows, sites: RunRows) -> bool:
    """Whether tables have the rows of a finished run for which the ledger stands."""
    identity, row = line.entry.identity, line.row
    if row is None or identity not in curves or not (line.imported or identity in sites):
        return False
    clock_s = curves.of(identity).columns["clock_s"]
    return (str(len(clock_s)), clock_s[-1]) == (row["rounds"], number_text(row["end_s"]))


def opened(line: RunState) -> Run:
    """A finished run with all its tables, and with the study's label and input."""
    assert line.file is not None
    run = read_imported(line.file, line.entry) if line.imported else open_run(line.file)
    return as_in_study(run, line.entry)


def _at_target(line: RunState, target: float) -> RunState:
    """A finished line as if its run had this target accuracy."""
    run, own = opened(line), line.entry.run_input
    stop = own.experiment.stop.model_copy(update={"target_accuracy": target})
    entry = replace(
        line.entry, run_input=replace(own, experiment=own.experiment.model_copy(update={"stop": stop}))
    )
    run = replace(run, meta=run.meta | {"time_to_accuracy_s": run.time_to(target)})
    return replace(line, entry=entry, run=run, row=None)


def as_in_study(run: Run, entry: Entry) -> Run:
    """The run with the study's label, world and input. Those in its file may differ: another study may have made it,
    before a key was added to hpctrip, or with data in another place."""
    told = {"label": entry.label or "", "world": entry.world}
    return replace(run, meta=run.meta | told, input=entry.resolved)
