"""From a study file to its runs: every combination of axes and seeds, read, checked and named by its identity."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import beside
from hpctrip.base.text import shown as shown_value
from hpctrip.config.identity import chosen, flat, identity, neutral_keys, raised_rules, without
from hpctrip.config.inputs import Tables, deep, nested, resolved
from hpctrip.config.plugins import Extensions
from hpctrip.config.sources import PLUGINS, Source
from hpctrip.learn.data.cached import digest_of_large
from hpctrip.runner.experiment import (
    Input,
    demonstration,
    merge_layers,
    read_user_input,
    relative_to_folder,
    resolve,
)
from hpctrip.runner.provenance import files_of_input
from hpctrip.studies.file import MOST_RUNS, Axis, StudyFile

RULES = 1
"""Raised where every input comes to mean other numbers: all runs of before are then stale. Where only those of one
component do, its own `rules` are raised. A key that is added needs neither, where its default means what was done
before."""
MOST_CELLS = 10 * MOST_RUNS
"""Combinations of the first axes: those to come may leave out most of them."""


@dataclass(frozen=True)
class Entry:
    """One run of a grid."""

    number: int
    """Its place in the whole grid, from 0."""
    choices: tuple[tuple[str, str], ...]
    """(axis, label) of every axis."""
    label: str | None
    """How figures call it; None: by its policy."""
    given: Input
    settings: Tables
    """{dotted key: value} of all that can change its result, without the keys of `sources`."""
    sources: tuple[Source, ...]
    """The files that its input names, and its plug-ins, by content."""
    identity: str
    """Digest of both."""

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.given.experiment.seed

    @property
    def variant(self) -> str:
        """What it shares with its other seeds."""
        return ", ".join(label for _, label in self.choices) or self.given.experiment.label or "run"

    @property
    def name(self) -> str:
        """What it is called: its variant and seed."""
        return f"{self.variant}, seed {self.seed}"


@dataclass(frozen=True)
class _Choice:
    """One choice of an axis."""

    axis: str
    label: str
    inputs: tuple[str, ...]
    tables: Tables
    is_variant: bool
    """Figures call the run by its label; the lines of the command are laid over it."""
    among: tuple[str, ...] = ()
    """With which labels of other axes it is combined; empty: with all."""


def entries(
    file: StudyFile,
    place: str,
    overrides: Sequence[str] = (),
    plugins: Sequence[str] = (),
    small: bool = False,
) -> list[Entry]:
    """The runs of the study `file`, which lies at `place`, in order: seeds innermost. `overrides` are lines laid over
    all. Raises InputError with all that is wrong with any of them, said once."""
    folder = os.path.dirname(place)
    axes = [list(_choices(axis, small)) for axis in file.axis]
    chosen = file.small.seeds if small and file.small.seeds else file.seeds
    seeds: list[Tables] = [{}] if chosen is None else [{"seed": seed} for seed in chosen]
    cells = _cells(axes, len(seeds), place)
    above = [file.small.tables] if small else []
    reader, faults, found = _Reader(folder, tuple(overrides), tuple(plugins)), _Faults(place), []
    for cell in cells:
        for seed in seeds:
            variants, values = ([c.tables for c in cell if c.is_variant is which] for which in (True, False))
            choices = tuple((choice.axis, choice.label) for choice in cell)
            name = ", ".join([*(label for _, label in choices), *(f"seed {s}" for s in seed.values())])
            try:
                given = reader.read(file, cell, [*above, *variants], [*values, seed])
                if seed == seeds[0]:
                    given.experiment.check()
                called = (
                    " ".join(choice.label for choice in cell if choice.is_variant) or given.experiment.label
                )
                found.append(Entry(len(found), choices, called, given, *reader.identify(given)))
            except InputError as error:
                faults.note(name, error)
                break  # the other seeds have the same faults
    faults.note_twins(found)
    faults.report()
    return found


def is_one_value(file: StudyFile, place: str, line: str, plugins: Sequence[str]) -> bool:
    """Whether a line `key=value` is taken as it stands by the first run of a study."""
    cell = [next(_choices(axis, False)) for axis in file.axis]
    reader = _Reader(os.path.dirname(place), (line,), tuple(plugins))
    key = line.partition("=")[0].strip()
    try:
        reader.read(file, cell, [choice.tables for choice in cell])
    except InputError as error:
        places = [fault.place.partition(" = ")[0] for fault in error.faults]
        return not any(key == at or key.startswith(f"{at}.") for at in places)
    return True


def _choices(axis: Axis, small: bool) -> Iterator[_Choice]:
    for variant in axis.variants or ():
        if small and variant.small is False:
            continue
        tables = merge_layers(variant.tables, [variant.small] if small else [])
        yield _Choice(axis.title, variant.label, tuple(variant.inputs), tables, True, tuple(variant.among))
    for value in (axis.small if small and axis.small else axis.values) or ():
        table = nested(axis.key or "", value)
        yield _Choice(axis.title, f"{axis.title} = {shown(value)}", (), table, False)


def _cells(axes: Sequence[Sequence[_Choice]], num_seeds: int, place: str) -> list[tuple[_Choice, ...]]:
    """Every combination of choices, one of each axis, of which none leaves out another. They grow axis by axis: what is
    left out is not continued. Raises InputError as soon as there are too many of them."""
    labels = [{choice.label for choice in axis} for axis in axes]
    cells: list[tuple[_Choice, ...]] = [()]
    for axis, own in zip(axes, labels, strict=True):
        grown = ((*cell, choice) for cell in cells for choice in axis if _fits(choice, own, cell, labels))
        cells = list(itertools.islice(grown, MOST_CELLS + 1))
        if len(cells) > MOST_CELLS:
            break
    if len(cells) > MOST_CELLS or len(cells) * num_seeds > MOST_RUNS:
        number = math.prod(map(len, axes)) * num_seeds
        some_left_out = any(choice.among for axis in axes for choice in axis)
        raise InputError(
            place or "the sweep",
            f"is a grid of {shown_value(number)} runs{' less what `among` leaves out' if some_left_out else ''}, "
            f"{MOST_RUNS:,} are the most",
            "give fewer values or seeds, or several studies",
        )
    return cells


def _fits(choice: _Choice, own: set[str], cell: Sequence[_Choice], labels: Sequence[set[str]]) -> bool:
    """Whether a choice of the axis with the labels `own` is combined with those of the axes before."""
    return all(
        _goes_with(choice, other, others) and _goes_with(other, choice, own)
        for other, others in zip(cell, labels, strict=False)
    )


def _goes_with(choice: _Choice, other: _Choice, labels: set[str]) -> bool:
    """Whether a choice takes this one of an axis: it does where it names it, or none of that axis."""
    return not choice.among or other.label in choice.among or labels.isdisjoint(choice.among)


def shown(value: Any) -> str:
    """A value of an axis in a label."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


@dataclass
class _Reader:
    """Reads what the runs of one grid have in common once."""

    folder: str
    overrides: tuple[str, ...]
    plugins: tuple[str, ...]
    _files: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Tables]] = field(default_factory=dict)
    _extensions: dict[tuple[str, ...], Extensions] = field(default_factory=dict)
    _digests: dict[tuple[str, object], Source] = field(default_factory=dict)

    def read(
        self,
        file: StudyFile,
        cell: Iterable[_Choice],
        layers: Iterable[Tables],
        values: Iterable[Tables] = (),
    ) -> Input:
        """The input of one run, from below: the files of the study and of its choices, what all runs have in common,
        overlays, `layers`, and on top, as one layer, the lines of the command and the values of axes: a kind and a key
        of it may be among either."""
        named = [*file.inputs, *(path for choice in cell for path in choice.inputs)]
        inputs, overlays = (
            tuple(beside(self.folder, path) for path in paths) for paths in (named, file.overlays)
        )
        if (inputs, overlays) not in self._files:
            self._files[inputs, overlays] = read_user_input(
                (*inputs, *overlays), self.overrides, self.plugins
            )[0]
        *files, last = self._files[inputs, overlays]
        below, over = files[: len(inputs)], files[len(inputs) :]
        common, *tables = (self._seen_from_here(table) for table in (file.common, *layers))
        merged = merge_layers(
            {}, [*(below or [demonstration()]), common, *over, *tables, reduce(deep, values, last)]
        )
        plugins = merged.get(PLUGINS)
        code = tuple(path for path in plugins if isinstance(path, str)) if isinstance(plugins, list) else ()
        if code not in self._extensions:
            self._extensions[code] = Extensions.of(code)
            self._extensions[code].run()
        return resolve(merged, self._extensions[code])

    def _seen_from_here(self, table: Tables) -> Tables:
        if PLUGINS not in table:
            return table
        return table | {PLUGINS: relative_to_folder(table[PLUGINS], self.folder)}

    def identify(self, given: Input) -> tuple[Tables, tuple[Source, ...], str]:
        """(settings, sources, identity) of a run. What files hold counts, not where they lie."""
        sources = [plugin.source for plugin in given.extensions.plugins]
        for file in files_of_input(given):
            at = (file.key, file.value)
            if at not in self._digests:
                self._digests[at] = file.source(digest_of_large)
            sources.append(self._digests[at])
        experiment = given.experiment
        settings = without(flat(resolved(experiment)), [*neutral_keys(experiment), PLUGINS])
        settings = without(settings, [source.key for source in sources])
        given_keys = {key: value for key, value in chosen(experiment).items() if key in settings}
        besides = {"sources": sorted([source.key, source.digest] for source in sources), "rules": RULES}
        for name, value in (
            ("raised rules", raised_rules(experiment)),
            ("packages", sorted(map(str, given.extensions.packages))),
        ):
            if value:
                besides[name] = value
        return settings, tuple(sources), identity(given_keys | besides)


_FAULTS_SAID = 5
"""Of a grid's faults these are told one by one: those of many values are mostly alike."""


@dataclass
class _Faults:
    """What is wrong with a grid: each fault once, at the first run that has it."""

    place: str
    _found: dict[Fault, list[str]] = field(default_factory=dict)

    def note(self, name: str, error: InputError) -> None:
        """The run of this name cannot be."""
        for fault in error.faults:
            self._found.setdefault(fault, []).append(name)

    def note_twins(self, found: Iterable[Entry]) -> None:
        """Two runs of one grid that are the same, or called so."""
        first: dict[str, Entry] = {}
        called: dict[str, Entry] = {}
        for entry in found:
            other = first.setdefault(entry.identity, entry)
            if other is not entry:
                problem = f"is the same run as {other.variant!r}: no key that can change a result differs"
                fault = Fault(repr(entry.variant), problem, "leave one out, or mend what was to differ")
                self._found.setdefault(fault, []).append(entry.name)
            elif called.setdefault(entry.name, entry) is not entry:
                fault = Fault(
                    repr(entry.variant), "is the name of two runs", "give one of the labels another"
                )
                self._found.setdefault(fault, []).append(entry.name)

    def report(self) -> None:
        """Raise InputError if there is anything."""
        if self._found:
            said = [self._said(fault, names) for fault, names in list(self._found.items())[:_FAULTS_SAID]]
            if left := len(self._found) - len(said):
                said.append(Fault(self.place or "the sweep", f"more faults: {left:,}"))
            raise InputError(faults=said)

    def _said(self, fault: Fault, names: Sequence[str]) -> Fault:
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        is_named = fault.place in names[0].split(", ")  # the run is called by the value that is wrong
        place = ": ".join(filter(None, (self.place, f"{names[0]}{others}", "" if is_named else fault.place)))
        return Fault(place, fault.problem, fault.way_out)
