"""Reads study files, the files that they include and axes from the command line, as studies over one run store."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.io import absolute, beside, digest, read_text
from hpctrip.base.text import did_you_mean, unknown_name
from hpctrip.config.inputs import Tables, other_command, read_layers, validate
from hpctrip.config.package_data import STUDIES, shipped, shipped_inputs
from hpctrip.config.plugins import code_name
from hpctrip.config.values import Bare, readings, written_list
from hpctrip.runner.experiment import demonstration
from hpctrip.studies.file import StudyFile, parse_range
from hpctrip.studies.grid import Entry, entries
from hpctrip.studies.run_store import FOLDERS, RunStore
from hpctrip.studies.study import Study


def study_file(name: str) -> str:
    """Path of a study file; `name` is a path, or the name of a study that comes with hpctrip. Raises InputError if it
    is neither."""
    by_name = shipped(STUDIES)
    if os.path.lexists(name) and not os.path.isdir(name):
        return name
    if name in by_name:
        return str(by_name[name])
    if os.path.isdir(name):
        from hpctrip.figures.common.reading import tables_command

        raise InputError(name, "is a folder, not a study file", f"e.g. {tables_command(Path(name))}")
    here = [str(path) for path in Path(name).parent.glob("*.toml")] if name.endswith(".toml") else []
    near = did_you_mean(name, here) or unknown_name(Path(name).stem, by_name)
    raise InputError(name, "no such study file", near)


class Changes(NamedTuple):
    """Overrides, axes and plug-ins that a command adds to study files or to the input files of a sweep."""

    overrides: Sequence[str] = ()
    """Lines `key=value` over all runs; that of an axis' key, or of the seed, takes the place of the axis."""
    sweeps: Sequence[str] = ()
    """Lines `key=value,value`, each an axis."""
    plugins: Sequence[str] = ()
    small: bool = False
    """Whether to use the small forms."""

    @property
    def words(self) -> list[str]:
        """The words of a command line that make them."""
        words = ["--small"] if self.small else []
        for option, values in (("-o", self.overrides), ("--sweep", self.sweeps), ("--plugin", self.plugins)):
            words += [word for value in values for word in (option, value)]
        return words


NO_CHANGES = Changes()


def read_studies(path: str, folder: Path, changes: Changes = NO_CHANGES, checked: bool = True) -> list[Study]:
    """Read the study in a file, or the studies that it includes, in order; of an input file, the sweep of `changes`.

    `folder` is that of runs and studies; for `checked` see `entries`. Raises InputError with all faults of
    the first file that has any.
    """
    overrides, sweeps, plugins, small = changes
    if sweeps and not small and other_command(read_layers([path], ())[0], StudyFile) == "run":
        return [sweep_study([path], folder, changes)]
    runs = RunStore(folder)
    places: dict[str, str] = dict.fromkeys(FOLDERS, "")
    studies = []
    for place, tables, group in _files(path, (), (), ""):
        file = _validated(tables, place)
        if small and not file.has_small_form:
            hint = "leave it out, or write one: [small]"
            raise InputError(f"{place}: --small", "this study has no small form", hint)
        keys = {"seed", *(axis.key for axis in file.axis)}
        of_axes = [line for line in overrides if line.partition("=")[0].strip() in keys]
        if axes := axes_of(of_axes, "-o") | axes_of(sweeps, "--sweep"):
            file = _validated(with_axes(tables, _seen_from(os.path.dirname(place), axes)), place)
        lines = [line for line in overrides if line not in of_axes]
        grid = entries(file, place, lines, plugins, small, checked)
        own = "/".join(filter(None, (group, f"{file.name}-small" if small else file.name)))
        if own in places:
            problem = f"is that of {places[own]}" if places[own] else "is a folder that all studies share"
            raise InputError(f"{place}: name = {own!r}", problem, "every study needs a name of its own")
        places[own] = place
        studies.append(Study(file, own, grid, runs))
    return studies


def all_entries(studies: Sequence[Study]) -> list[Entry]:
    """The runs of all studies, in order and without duplicates."""
    first: dict[str, Entry] = {}
    for study in studies:
        for entry in study.entries:
            first.setdefault(entry.identity, entry)
    return list(first.values())


def sweep_study(paths: Sequence[str], folder: Path, changes: Changes) -> Study:
    """The study of a command `hpctrip run` with `--sweep`, over the input files `paths`. Finished runs of earlier
    sweeps that differ in nothing but the values on their axes keep their rows before its own; their lines are in
    sweeps.jsonl in its folder. The folder's name tells sweeps of other lines -o and files apart."""
    inputs = {"inputs": list(paths)} if paths else {"common": demonstration()}

    def expanded(lines: Sequence[str]) -> tuple[StudyFile, list[Entry]]:
        axes = axes_of(lines, "--sweep")
        file = _validated(with_axes({"name": "sweep", "seeds": None, **inputs}, axes), "")
        return file, entries(file, "", changes.overrides, changes.plugins)

    file, grid = expanded(changes.sweeps)
    axes = list(axes_of(changes.sweeps, "--sweep"))
    scenario = grid[0].run_input.experiment.name
    name = "_".join([f"{scenario}-sweep", *axes])[:80]
    if changes.overrides or paths[1:]:
        words = json.dumps([sorted(changes.overrides), list(paths[1:])])
        name = f"{name[:71]}-{digest(words.encode())[:8]}"
    file = file.model_copy(update={"title": f"{scenario} over {' x '.join(axes)}"})
    command = ""
    if len(paths) == 1:  # all that `study tables` takes
        path = paths[0] if os.path.lexists(paths[0]) else str(shipped_inputs()[paths[0]])
        command = shlex.join(["hpctrip", "study", "tables", path, *changes.words])
    study = Study(file, name, grid, RunStore(folder), (list(changes.sweeps),), command=command)
    own, earlier = {entry.identity for entry in grid}, _earlier_sweeps(study.sweeps_file, axes)
    kept: dict[str, Entry] = {}
    for lines in earlier:
        with suppress(InputError):  # its values are none any more
            others = [entry for entry in expanded(lines)[1] if entry.identity not in own]
            kept |= {state.entry.identity: state.entry for state in study.lines(others) if state.finished}
    sweeps = (*(lines for lines in earlier if lines != list(changes.sweeps)), list(changes.sweeps))
    return replace(study, entries=[*kept.values(), *grid], sweeps=sweeps, asked=frozenset(own))


def _earlier_sweeps(file: Path, axes: Sequence[str]) -> list[list[str]]:
    """The lines of each sweep over these axes that a file names."""
    earlier = []
    with suppress(InputError, ValueError, RecursionError):
        for line in read_text(file).splitlines():
            lines = json.loads(line)
            if isinstance(lines, list) and all(isinstance(each, str) for each in lines):
                earlier.append(lines)
    return [lines for lines in earlier if [each.partition("=")[0].strip() for each in lines] == list(axes)]


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
        read_layers(own, ())
    laid_over = [*own, *overlays]
    if not file.studies:
        yield path, tables | {"overlays": laid_over}, group
    group = group or (file.name if file.overlays else "")
    for other in file.studies:
        yield from _files(beside(folder, other), laid_over, (*within, os.path.realpath(path)), group)


def _validated(tables: Tables, place: str) -> StudyFile:
    with faults_at(place):
        return validate(tables, StudyFile)


def _seen_from(folder: str, axes: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Axes of the command line, in which paths of code are relative to the study file, as in its own axes."""

    def moved(value: Any) -> Any:
        file, name = code_name(value) or ("/", "")
        return f"{os.path.relpath(file, folder or '.')}:{name}" if absolute(file) != file else value

    return {key: list(map(moved, values)) for key, values in axes.items()}


def axes_of(lines: Iterable[str], option: str) -> dict[str, list[Any]]:
    """{key: values} of lines `key=value,value`, which are arguments of `option`. A value is as in a `-o` line, or a
    range of whole numbers such as 0..9. Of two lines with the same key, the last counts. Raises InputError."""
    axes: dict[str, list[Any]] = {}
    for line in lines:
        try:
            key, values = _axis(line)
        except (ValueError, RecursionError) as error:
            example = f"e.g. {option} policy.k=10,20 or {option} seed=0..9"
            raise InputError(f"{option} {line}", str(error), example) from None
        axes[key] = values
    return axes


def _axis(line: str) -> tuple[str, list[Any]]:
    """(key, values) of a line. Raises ValueError."""
    key, _, text = map(str.strip, line.partition("="))
    if not key or not text:
        raise ValueError("not of the form key=value,value")
    values: list[Any] = []
    for value in written_list(text):
        bare = isinstance(value, Bare)
        if bare and not value:
            raise ValueError("has an empty value")
        values += parse_range(value) if bare and re.fullmatch(r"[\d\s]*\.\.[\d\s]*", value) else [value]
    if key == "seed":
        values = [next((one for one in readings(str(value)) if type(one) is int), None) for value in values]
        if None in values:
            raise ValueError("names no seeds")
    return key, values


def with_axes(tables: Tables, axes: Mapping[str, list[Any]]) -> Tables:
    """Tables of a study file in which these values replace those of its axes and seeds, or are further axes; they count
    in the small form, too."""
    tables = dict(tables)
    all_axes = [dict(axis) for axis in tables.get("axis", [])]
    for key, values in axes.items():
        own = next((axis for axis in all_axes if axis.get("key") == key), None)
        if key == "seed":
            tables["seeds"] = values
            tables["small"] = {
                name: value for name, value in tables.get("small", {}).items() if name != "seeds"
            }
        elif own is not None:
            own["values"] = values
            own.pop("small", None)
        else:
            all_axes.append({"key": key, "values": values})
    return tables | {"axis": all_axes}
