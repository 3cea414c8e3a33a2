"""Expands a study file into its runs: reads and validates every combination of axes and seeds, and identifies it."""

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
"""Version of the rules that turn an input into results. Raise it when all inputs give other numbers than before; all
earlier runs become stale. If only the inputs of one component do, raise the `rules` of that component. A new key needs
neither if its default keeps the results."""
MOST_CELLS = 10 * MOST_RUNS
"""Maximum number of combinations of the first axes; `among` of further axes may leave out most of them."""


@dataclass(frozen=True)
class Entry:
    """One run of a grid."""

    number: int
    """Index in the grid, from 0."""
    choices: tuple[tuple[str, str], ...]
    """(axis, label) of every axis."""
    label: str | None
    """Label in figures; None: its policy."""
    run_input: Input
    settings: Tables
    """{dotted key: value} of all keys that can change the result, except for those of `sources`."""
    sources: tuple[Source, ...]
    """Digests of the files that its input names, and of its plug-ins."""
    identity: str
    """Digest of the chosen settings and the sources."""

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.run_input.experiment.seed

    @property
    def variant(self) -> str:
        """Name of its configuration, shared by all its seeds."""
        return ", ".join(label for _, label in self.choices) or self.run_input.experiment.label or "run"

    @property
    def name(self) -> str:
        """Name of the run: its variant and seed."""
        return f"{self.variant}, seed {self.seed}"


@dataclass(frozen=True)
class _Choice:
    """One choice of an axis."""

    axis: str
    label: str
    inputs: tuple[str, ...]
    tables: Tables
    is_variant: bool
    """Whether it is a variant, not a value of a key: figures then use its label, and `-o` lines override it."""
    among: tuple[str, ...] = ()
    """Labels of other axes that it is combined with; empty: all."""


def entries(
    file: StudyFile,
    place: str,
    overrides: Sequence[str] = (),
    plugins: Sequence[str] = (),
    small: bool = False,
) -> list[Entry]:
    """The runs of the study `file` in order, seeds innermost. `place` is the path of the file, `overrides` are lines
    laid over all runs. Raises InputError with the faults of all runs, each fault once."""
    folder = os.path.dirname(place)
    axes = [list(_choices(axis, small)) for axis in file.axis]
    seed_list = file.small.seeds if small and file.small.seeds else file.seeds
    seeds: list[Tables] = [{}] if seed_list is None else [{"seed": seed} for seed in seed_list]
    cells = _cells(axes, len(seeds), place)
    above = [file.small.tables] if small else []
    reader, faults = _Reader(folder, tuple(overrides), tuple(plugins)), _Faults(place)
    grid: list[Entry] = []
    for cell in cells:
        for seed in seeds:
            variants, values = ([c.tables for c in cell if c.is_variant is which] for which in (True, False))
            choices = tuple((choice.axis, choice.label) for choice in cell)
            name = ", ".join([*(label for _, label in choices), *(f"seed {s}" for s in seed.values())])
            try:
                run_input = reader.read(file, cell, [*above, *variants], [*values, seed])
                if seed == seeds[0]:
                    run_input.experiment.check()
                label = (
                    " ".join(choice.label for choice in cell if choice.is_variant)
                    or run_input.experiment.label
                )
                grid.append(Entry(len(grid), choices, label, run_input, *reader.identify(run_input)))
            except InputError as error:
                faults.add(name, error)
                break  # the other seeds have the same faults
    faults.add_duplicates(grid)
    faults.report()
    return grid


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
    """All combinations of one choice per axis that `among` does not exclude. They are extended axis by axis, and an
    excluded one is not extended further. Raises InputError as soon as there are too many."""
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
    """Whether a choice of the axis with the labels `own` is combined with the choices `cell` of the axes before."""
    return all(
        _goes_with(choice, other, others) and _goes_with(other, choice, own)
        for other, others in zip(cell, labels, strict=False)
    )


def _goes_with(choice: _Choice, other: _Choice, labels: set[str]) -> bool:
    """Whether `choice` lists `other`, a choice of the axis with `labels`, or lists no label of that axis."""
    return not choice.among or other.label in choice.among or labels.isdisjoint(choice.among)


def shown(value: Any) -> str:
    """A value of an axis as text in a label."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


@dataclass
class _Reader:
    """Reads the inputs of a grid, and each file, plug-in and digest that its runs share only once."""

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
        """Read the input of one run. Its layers, from below, are the files of the study and of the choices, `common`,
        the overlays, `layers`, and on top, as one layer, the `-o` lines and `values` of axes: one of these may contain
        a kind, and the other a key of that kind."""
        input_files = [*file.inputs, *(path for choice in cell for path in choice.inputs)]
        inputs, overlays = (
            tuple(beside(self.folder, path) for path in paths) for paths in (input_files, file.overlays)
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

    def identify(self, run_input: Input) -> tuple[Tables, tuple[Source, ...], str]:
        """(settings, sources, identity) of a run. The contents of files count, not their paths."""
        sources = [plugin.source for plugin in run_input.extensions.plugins]
        for file in files_of_input(run_input):
            at = (file.key, file.value)
            if at not in self._digests:
                self._digests[at] = file.source(digest_of_large)
            sources.append(self._digests[at])
        experiment = run_input.experiment
        settings = without(flat(resolved(experiment)), [*neutral_keys(experiment), PLUGINS])
        settings = without(settings, [source.key for source in sources])
        chosen_keys = {key: value for key, value in chosen(experiment).items() if key in settings}
        besides = {"sources": sorted([source.key, source.digest] for source in sources), "rules": RULES}
        for name, value in (
            ("raised rules", raised_rules(experiment)),
            ("packages", sorted(map(str, run_input.extensions.packages))),
        ):
            if value:
                besides[name] = value
        return settings, tuple(sources), identity(chosen_keys | besides)


_MOST_FAULTS = 5
"""Number of faults of a grid that are reported one by one; the faults of many values are mostly alike."""


@dataclass
class _Faults:
    """Faults of a grid, each reported once, at the first run that has it."""

    place: str
    _names: dict[Fault, list[str]] = field(default_factory=dict)

    def add(self, name: str, error: InputError) -> None:
        """Add the faults of the run with this name."""
        for fault in error.faults:
            self._names.setdefault(fault, []).append(name)

    def add_duplicates(self, grid: Iterable[Entry]) -> None:
        """Add a fault for each pair of runs with the same identity or the same name."""
        first: dict[str, Entry] = {}
        named: dict[str, Entry] = {}
        for entry in grid:
            other = first.setdefault(entry.identity, entry)
            if other is not entry:
                problem = f"is the same run as {other.variant!r}: no key that can change a result differs"
                fault = Fault(repr(entry.variant), problem, "leave one out, or fix what was to differ")
                self._names.setdefault(fault, []).append(entry.name)
            elif named.setdefault(entry.name, entry) is not entry:
                fault = Fault(
                    repr(entry.variant), "is the name of two runs", "give one of the labels another"
                )
                self._names.setdefault(fault, []).append(entry.name)

    def report(self) -> None:
        """Raise InputError if there are faults."""
        if self._names:
            faults = [self._placed(fault, names) for fault, names in list(self._names.items())[:_MOST_FAULTS]]
            if left := len(self._names) - len(faults):
                faults.append(Fault(self.place or "the sweep", f"more faults: {left:,}"))
            raise InputError(faults=faults)

    def _placed(self, fault: Fault, names: Sequence[str]) -> Fault:
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        is_named = fault.place in names[0].split(", ")  # the name of the run contains the faulty value
        place = ": ".join(filter(None, (self.place, f"{names[0]}{others}", "" if is_named else fault.place)))
        return Fault(place, fault.problem, fault.way_out)
