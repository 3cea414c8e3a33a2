"""Studies as read: a file and those that it includes, each with its runs and its ledger over one pool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.io import beside, replace_file
from hpctrip.base.text import unknown_name
from hpctrip.config.inputs import Tables, read_layers, validate
from hpctrip.config.package_data import STUDIES, shipped
from hpctrip.record.merge import csv_bytes
from hpctrip.studies import table
from hpctrip.studies.claims.readings import Survey, by_reading
from hpctrip.studies.file import StudyFile
from hpctrip.studies.grid import Entry, entries, is_one_value
from hpctrip.studies.ledger import Ledger, Line
from hpctrip.studies.pictures import draw, save
from hpctrip.studies.run_store import RunStore
from hpctrip.studies.sweep import split, with_axes


@dataclass(frozen=True)
class Study:
    """One grid, and what is known of its runs."""

    file: StudyFile
    ledger: Ledger

    @property
    def title(self) -> str:
        """What it is about."""
        return self.file.title or self.file.name

    @property
    def readings_picture(self) -> Path:
        """Where the picture of its readings is drawn, if it has any."""
        return self.ledger.folder / "readings.png"

    def conclude(self) -> list[str]:
        """Write ledger, table and figures of what is finished; returns what is to be printed."""
        lines = self.ledger.export()
        found = table.rows(lines)
        folder = self.ledger.folder
        replace_file(folder / "table.csv", csv_bytes(table.frame(found)))
        replace_file(folder / "table.md", table.markdown(found, self.title).encode())
        said = [self.title, *table.printed(found), f"table: {folder / 'table.csv'}, {folder / 'table.md'}"]
        return [*said, *draw(self.file.figure, self.ledger, lines), *self._surveyed(lines)]

    def _surveyed(self, lines: Sequence[Line]) -> list[str]:
        """Check the claims for every reading, where the file asks for it; returns what is to be printed."""
        asked = self.file.readings
        if asked is None or not any(line.finished for line in lines):
            return []
        from hpctrip.studies.claims.readings_picture import draw_survey  # heavy

        runs = self.ledger.runs
        choices = [
            (dict(line.entry.choices), runs.read(line.entry) if line.finished else None) for line in lines
        ]
        survey = Survey.of(asked.claims, *by_reading(asked.axis, choices))
        replace_file(self.ledger.folder / "readings.md", survey.markdown.encode())
        return save(draw_survey(survey), self.readings_picture)


def study_file(name: str) -> str:
    """The study file of this path, or the one of this name that comes with hpctrip. InputError where there is none."""
    known = shipped(STUDIES)
    if os.path.lexists(name) and not (os.path.isdir(name) and name in known):
        return name
    if name in known:
        return str(known[name])
    raise InputError(name, "no such study file", unknown_name(Path(name).stem, known))


@dataclass(frozen=True)
class StudyOptions:
    """What a command asks of a study."""

    folder: Path
    """Where runs and studies lie."""
    overrides: Sequence[str] = ()
    """Lines laid over all runs; those that name several values are axes (`study.sweep`)."""
    plugins: Sequence[str] = ()
    small: bool = False

    @property
    def words(self) -> list[str]:
        """What asks for it on a command line, but for the folder."""
        lines = [word for line in self.overrides for word in ("-o", line)]
        code = [word for file in self.plugins for word in ("--plugin", file)]
        return [*(["--small"] if self.small else []), *lines, *code]


def read_studies(path: str, asked: StudyOptions) -> list[Study]:
    """The study in a file, or those that it includes, in order. Raises InputError with everything that is wrong in the
    first file that has faults."""
    runs = RunStore(asked.folder)
    places: dict[str, str] = {"runs": "", "logs": "", "store": ""}  # the folders of the pool
    studies = []
    for place, tables, group in _files(path, (), (), ""):
        study = _study(tables, place, asked, runs, group)
        name = study.ledger.name
        if name in places:
            problem = f"is that of {places[name]}" if places[name] else "is a folder that all studies share"
            raise InputError(f"{place}: name = {name!r}", problem, "every study needs a name of its own")
        places[name] = place
        studies.append(study)
    return studies


def all_entries(studies: Sequence[Study]) -> list[Entry]:
    """The runs of all studies, each once, in order: what an index of an array counts."""
    first: dict[str, Entry] = {}
    for study in studies:
        for entry in study.ledger.entries:
            first.setdefault(entry.identity, entry)
    return list(first.values())


def sweep_study(paths: Sequence[str], asked: StudyOptions) -> Study | None:
    """The study of one command: an input, and lines of which some name several values; None where none does."""
    tables: Tables = {"name": "sweep", "inputs": list(paths), "seeds": None}
    file = _validated(tables, "")
    lines, axes = split(asked.overrides, lambda line: is_one_value(file, "", line, asked.plugins))
    if all(len(values) == 1 for values in axes.values()):
        return None
    file = _validated(with_axes(tables, axes), "")
    grid = entries(file, "", lines, asked.plugins)
    name = "_".join([f"{grid[0].run_input.experiment.name}-sweep", *axes])[:80]
    title = f"{grid[0].run_input.experiment.name} over {' x '.join(axes)}"
    return Study(file.model_copy(update={"title": title}), Ledger(name, grid, RunStore(asked.folder)))


def _files(
    path: str, overlays: Sequence[str], within: tuple[str, ...], group: str
) -> Iterator[tuple[str, Tables, str]]:
    """(path, tables, group) of a study file, or of those that it includes, each with the overlays of those around it.
    The group is the name of the outermost one with overlays: with them, what it includes are other studies."""
    if os.path.realpath(path) in within:
        raise InputError(path, "includes itself", "take it out of its studies")
    (tables, _) = read_layers([path], ())
    file, folder = _validated(tables, path), os.path.dirname(path)
    own = [beside(os.path.abspath(folder), overlay) for overlay in file.overlays]
    with faults_at(f"{path}: overlays"):
        for overlay in own:
            read_layers([overlay], ())
    laid_over = [*own, *overlays]
    if not file.studies:
        yield path, tables | {"overlays": laid_over}, group
    group = group or (file.name if file.overlays else "")
    for other in file.studies:
        yield from _files(beside(folder, other), laid_over, (*within, os.path.realpath(path)), group)


def _validated(tables: Tables, place: str) -> StudyFile:
    with faults_at(place):
        return validate(tables, StudyFile)


def _study(tables: Tables, place: str, asked: StudyOptions, runs: RunStore, group: str) -> Study:
    file = _validated(tables, place)
    if asked.small and not file.has_small_form:
        raise InputError(
            f"{place}: --small", "this study has no small form", "leave it out, or write one: [small]"
        )

    def accepts(line: str) -> bool:
        return is_one_value(file, place, line, asked.plugins)

    lines, axes = split(asked.overrides, accepts, [axis.key for axis in file.axis if axis.key])
    if axes:
        file = _validated(with_axes(tables, axes), place)
    grid = entries(file, place, lines, asked.plugins, asked.small)
    name = file.name + ("-small" if asked.small else "")
    return Study(file, Ledger(f"{group}/{name}" if group else name, grid, runs))
