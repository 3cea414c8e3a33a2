"""Reads study files and the files that they include; each study has a grid of runs and a ledger over one run store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpctrip.base.errors import HpctripError, InputError, faults_at
from hpctrip.base.io import beside
from hpctrip.base.text import unknown_name
from hpctrip.config.inputs import Tables, read_layers, resolved, validate
from hpctrip.config.package_data import STUDIES, shipped
from hpctrip.record.reader import Run
from hpctrip.studies.file import StudyFile
from hpctrip.studies.grid import Entry, entries
from hpctrip.studies.ledger import Ledger
from hpctrip.studies.run_store import RunStore
from hpctrip.studies.sweep import axes_of, with_axes, without_axes
from hpctrip.studies.tables import write_tables


@dataclass(frozen=True)
class Study:
    """A study file with the ledger of its runs."""

    file: StudyFile
    ledger: Ledger

    @property
    def title(self) -> str:
        """Title of the study; default: its name."""
        return self.file.title or self.file.name

    def conclude(self) -> list[str]:
        """Write the ledger, and the tables and figures of the finished runs. Returns the lines to print."""
        folder, store, lines = self.ledger.folder, self.ledger.runs, self.ledger.write()
        finished = [line for line in lines if line.finished]
        runs = {
            line.entry.identity: as_in_study(store.read(line.entry), line.entry, line.entry.label)
            for line in finished
        }
        overlays = ", ".join(Path(file).name for file in self.file.overlays)
        facts = {
            "study": self.file.name,
            "folder": self.ledger.name,
            "title": self.title,
            "overlays": overlays,
        }
        report = write_tables(folder, facts, lines, runs)
        return [
            *report,
            *(self._draw(list(runs.values()), sum(line.imported for line in lines)) if runs else ()),
        ]

    def _draw(self, runs: Sequence[Run], num_imported: int) -> Iterator[str]:
        """Draw the figures. A figure that cannot be drawn (too few runs, or imported ones without the data it needs) is
        left out. Yields the lines to print."""
        names = [picture.name for picture in self.file.figure]
        for number, picture in enumerate(self.file.figure):
            from hpctrip.figures import FIGURES  # heavy

            draw, earlier = FIGURES[picture.name], names[:number].count(picture.name)
            assert draw.source.of_study is not None  # the study file was checked
            try:
                drawing = draw(draw.source.of_study(runs), **picture.options())
            except (HpctripError, KeyError, ValueError) as error:
                lacks = f"{num_imported} imported runs lack what it draws"
                reason = lacks if num_imported else str(error).splitlines()[0]
                yield f"figure {picture.name} not drawn: {reason}"
                continue
            file = f"{picture.name}{f'_{earlier + 1}' if earlier else ''}.png"
            yield from drawing.lines
            yield from drawing.save(self.ledger.folder / "figures" / file, overwrite=True)


def as_in_study(run: Run, entry: Entry, label: str | None) -> Run:
    """The run with the study's label and input. Those in its file may differ: another study may have made it, before a
    key was added to hpctrip, or with data in another place."""
    return replace(run, meta=run.meta | {"label": label or ""}, input=resolved(entry.run_input.experiment))


def study_file(name: str) -> str:
    """Path of a study file; `name` is a path, or the name of a study that comes with hpctrip. Raises InputError if it
    is neither."""
    by_name = shipped(STUDIES)
    if os.path.lexists(name) and not (os.path.isdir(name) and name in by_name):
        return name
    if name in by_name:
        return str(by_name[name])
    raise InputError(name, "no such study file", unknown_name(Path(name).stem, by_name))


@dataclass(frozen=True)
class StudyOptions:
    """Options of a command that select and modify a study."""

    folder: Path
    """Folder of runs and studies."""
    overrides: Sequence[str] = ()
    """Lines `key=value` laid over all runs; that of an axis' key, or of the seed, takes the place of the axis."""
    sweeps: Sequence[str] = ()
    """Lines `key=value,value`, each an axis (see `hpctrip.studies.sweep`)."""
    plugins: Sequence[str] = ()
    small: bool = False
    """Use the small form of the study."""

    @property
    def arguments(self) -> list[str]:
        """Command-line arguments that give the same options, except for the folder."""
        lines = [argument for line in self.overrides for argument in ("-o", line)]
        lines += [argument for line in self.sweeps for argument in ("--sweep", line)]
        code = [argument for file in self.plugins for argument in ("--plugin", file)]
        return [*(["--small"] if self.small else []), *lines, *code]


def read_studies(path: str, options: StudyOptions) -> list[Study]:
    """Read the study in a file, or the studies that it includes, in order. Raises InputError with all faults of the
    first file that has any."""
    runs = RunStore(options.folder)
    places: dict[str, str] = {"runs": "", "logs": "", "store": ""}  # folders of the run store
    studies = []
    for place, tables, group in _files(path, (), (), ""):
        study = _study(tables, place, options, runs, group)
        name = study.ledger.name
        if name in places:
            problem = f"is that of {places[name]}" if places[name] else "is a folder that all studies share"
            raise InputError(f"{place}: name = {name!r}", problem, "every study needs a name of its own")
        places[name] = place
        studies.append(study)
    return studies


def all_entries(studies: Sequence[Study]) -> list[Entry]:
    """The runs of all studies, in order and without duplicates; `--task` and Slurm arrays index this list."""
    first: dict[str, Entry] = {}
    for study in studies:
        for entry in study.ledger.entries:
            first.setdefault(entry.identity, entry)
    return list(first.values())


def sweep_study(paths: Sequence[str], options: StudyOptions) -> Study:
    """The study of a command `hpctrip run` with `--sweep`."""
    axes = axes_of(options.sweeps)
    file = _validated(with_axes({"name": "sweep", "inputs": list(paths), "seeds": None}, axes), "")
    grid = entries(file, "", options.overrides, options.plugins)
    name = "_".join([f"{grid[0].run_input.experiment.name}-sweep", *axes])[:80]
    title = f"{grid[0].run_input.experiment.name} over {' x '.join(axes)}"
    return Study(file.model_copy(update={"title": title}), Ledger(name, grid, RunStore(options.folder)))


def _files(
    path: str, overlays: Sequence[str], within: tuple[str, ...], group: str
) -> Iterator[tuple[str, Tables, str]]:
    """(path, tables, group) of a study file, or of each file that it includes with the overlays of the including files.

    The group is the name of the outermost file with overlays: included studies get a folder of their own below it, as
    overlays make other studies of them.
    """
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


def _study(tables: Tables, place: str, options: StudyOptions, runs: RunStore, group: str) -> Study:
    file = _validated(tables, place)
    if options.small and not file.has_small_form:
        raise InputError(
            f"{place}: --small", "this study has no small form", "leave it out, or write one: [small]"
        )

    keys = ["seed", *(axis.key for axis in file.axis if axis.key)]
    lines, of_axes = without_axes(options.overrides, keys)
    if axes := axes_of([*of_axes, *options.sweeps]):
        file = _validated(with_axes(tables, axes), place)
    grid = entries(file, place, lines, options.plugins, options.small)
    name = file.name + ("-small" if options.small else "")
    return Study(file, Ledger(f"{group}/{name}" if group else name, grid, runs))
