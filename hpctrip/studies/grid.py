"""Expands a study file into its runs: reads and validates every combination of axes and seeds, and identifies it."""

from __future__ import annotations

import itertools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Any, NamedTuple

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import absolute, beside
from hpctrip.base.text import shown as shown_value
from hpctrip.config.component import Registry, owner_of
from hpctrip.config.identity import VERSION, added_keys, flat, identity, neutral_keys, raised_rules, without
from hpctrip.config.inputs import Tables, deep, nested, resolved
from hpctrip.config.plugins import Extensions, code_name, with_code_paths, without_folders
from hpctrip.config.sources import PLUGINS, NamedFiles, Source
from hpctrip.learn.data.cached import content_of
from hpctrip.runner.experiment import (
    Experiment,
    Input,
    input_of,
    merge_layers,
    name_plugins,
    read_seen_layers,
    seen_from,
)
from hpctrip.runner.provenance import files_of_input
from hpctrip.studies.file import MOST_RUNS, Axis, StudyFile

RULES = 1
"""Version of the rules that turn an input into results. Raise it when all inputs give other numbers than before; all
earlier runs become stale. If only the inputs of one component do, raise the `rules` of that component. A new key needs
neither if it is declared `Added`."""
WORLD = "world"
"""Name of the axis whose choices are not compared with each other."""
_KEYS_OF_A_KIND = (
    """for keys of one kind: --sweep 'policy={kind="random",k=2},{kind="powertrip"}', or a study's variants"""
)
_MOST_FAULTS = 5
"""Number of faults of a grid that are reported one by one; the faults of many values are mostly alike."""


@dataclass(frozen=True)
class Entry:
    """One run of a grid."""

    choices: tuple[tuple[str, str], ...]
    """(axis, label) of every axis."""
    label: str | None
    """Label in figures; None: its policy."""
    run_input: Input
    sources: tuple[Source, ...]
    """Digests of the files that its input names, and of its plug-ins."""
    identity: str
    """Digest of the settings, the sources and the rules."""
    resolved: Tables
    """Its input with all defaults."""
    rules: str
    """Versions of the rules by which it is computed: that of hpctrip, and those of its tables above 1."""

    @property
    def settings(self) -> Tables:
        """{dotted key: value} of all keys that can change the result, except for those of `sources`."""
        return _settings(self.run_input.experiment, self.sources)

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self.run_input.experiment.seed

    @property
    def variant(self) -> str:
        """Name of its configuration, shared by all its seeds."""
        return ", ".join(label for _, label in self.choices) or self.run_input.experiment.label or "run"

    @property
    def axes(self) -> dict[str, str]:
        """{axis: value of its key, or label of its variant}, the columns of tables."""
        return {axis: label.removeprefix(f"{axis} = ") for axis, label in self.choices}

    @property
    def world(self) -> str:
        """Its label on the axis called `WORLD`, within which runs are compared; empty without such an axis."""
        return dict(self.choices).get(WORLD, "")

    def made_otherwise(self, row: Mapping[str, str]) -> str:
        """By which other rules the run of a ledger's row was computed; empty if these are the same."""
        for column, now in (("identity_version", str(VERSION)), ("rules", self.rules)):
            if (was := row.get(column, "")) != now:
                return f"{column} {shown_value(was or 'absent')}, now {now}"
        return ""

    @property
    def name(self) -> str:
        """Name of the run: its variant and seed."""
        return f"{self.variant}, seed {self.seed}"


class _Choice(NamedTuple):
    """One choice of an axis: a variant, or a value of its key. The label of a variant is used in figures, and `-o`
    lines override it."""

    axis: str
    label: str
    tables: Tables
    is_variant: bool = False
    inputs: Sequence[str] = ()
    among: frozenset[str] = frozenset()
    """Labels of other axes that it is combined with; empty: all."""


def entries(
    file: StudyFile,
    place: str,
    overrides: Sequence[str] = (),
    plugins: Sequence[str] = (),
    small: bool = False,
    checked: bool = True,
) -> list[Entry]:
    """The runs of the study `file` in order, seeds innermost. `place` is the path of the file, `overrides` are lines
    laid over all runs. Each combination of axes is validated once, for all its seeds, and if `checked`, it is also
    checked with the files that it reads. Raises InputError with the faults of all runs, each fault once."""
    place_shown = place or "the sweep"
    seeds = (file.small.seeds if small and file.small.seeds else file.seeds) or [None]
    cells = _cells([list(_choices(axis, small)) for axis in file.axis], len(seeds), place_shown)
    reader = _Reader(file, os.path.dirname(place), overrides, plugins)
    faults: dict[Fault, list[str]] = defaultdict(list)  # {fault: names of the runs that have it}
    grid: list[Entry] = []
    for cell in cells:
        variants, values = ([c.tables for c in cell if c.is_variant is which] for which in (True, False))
        labels = " ".join(choice.label for choice in cell if choice.is_variant)
        choices = tuple((choice.axis, choice.label) for choice in cell)
        layers = [*([file.small.tables] if small else []), *variants]
        try:
            first = reader.read(
                cell, layers, [*values, *({"seed": seed} for seed in seeds[:1] if seed is not None)]
            )
            if checked:
                first.experiment.check()
            label = labels or first.experiment.label
            grid += [Entry(choices, label, *run) for run in reader.with_seeds(first, seeds)]
        except InputError as error:  # all seeds have the same faults
            parts = [*(label for _, label in choices), *(f"seed {s}" for s in seeds[:1] if s is not None)]
            for fault in error.faults:
                if fault.hint.startswith("kinds with it"):
                    fault = replace(fault, hint=f"{_KEYS_OF_A_KIND}; {fault.hint}")
                faults[fault].append(", ".join(parts))
    for faulty, fault in (*_duplicates(grid), *_shared_outputs(grid)):
        faults[fault].append(faulty)
    if faults:
        raise InputError(faults=list(_reported(faults, place, place_shown)))
    return grid


def _choices(axis: Axis, small: bool) -> Iterator[_Choice]:
    for variant in axis.variants or ():
        if small and variant.small is False:
            continue
        tables = merge_layers(variant.tables, [variant.small] if small else [])
        yield _Choice(axis.title, variant.label, tables, True, variant.inputs, frozenset(variant.among))
    key = axis.key or ""
    of_kinds = key in Experiment.model_fields and isinstance(owner_of(Experiment.model_fields[key]), Registry)
    for value in (axis.small if small and axis.small else axis.values) or ():
        is_kind = of_kinds and isinstance(value, str)  # of a whole table, such as policy=all,random
        tables = nested(f"{key}.kind" if is_kind else key, value)
        yield _Choice(axis.title, f"{axis.title} = {shown(value)}", tables)


def _cells(axes: Sequence[Sequence[_Choice]], num_seeds: int, place: str) -> list[tuple[_Choice, ...]]:
    """All combinations of one choice per axis that `among` does not exclude. Raises InputError if there are too
    many."""
    cells = list(itertools.islice(_combined(axes, ()), MOST_RUNS + 1))
    if len(cells) * num_seeds > MOST_RUNS:
        number = math.prod(map(len, axes)) * num_seeds
        some_left_out = any(choice.among for axis in axes for choice in axis)
        raise InputError(
            place,
            f"is a grid of {shown_value(number)} runs{' less what `among` leaves out' if some_left_out else ''}, "
            f"{MOST_RUNS:,} are the most",
            "give fewer values or seeds, or several studies",
        )
    return cells


def _combined(axes: Sequence[Sequence[_Choice]], cell: tuple[_Choice, ...]) -> Iterator[tuple[_Choice, ...]]:
    """The combinations that begin with the choices `cell` of the first axes."""
    if len(cell) == len(axes):
        yield cell
        return
    own = axes[len(cell)]
    for choice in own:
        pairs = zip(cell, axes, strict=False)
        if all(_lists(choice, other, others) and _lists(other, choice, own) for other, others in pairs):
            yield from _combined(axes, (*cell, choice))


def _lists(choice: _Choice, other: _Choice, axis: Sequence[_Choice]) -> bool:
    """Whether `choice` lists `other`, a choice of `axis`, or lists no label of that axis."""
    return not choice.among or other.label in choice.among or choice.among.isdisjoint(c.label for c in axis)


def shown(value: Any) -> str:
    """A value of an axis as text in a label: of a table its kind and keys, as in "random k = 2"."""
    if isinstance(value, dict):
        keys = ", ".join(f"{key} = {shown(each)}" for key, each in flat(value).items() if key != "kind")
        return " ".join(filter(None, (str(value.get("kind", "")), keys))) or "{}"
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


class _Reader:
    """Reads the inputs of a grid, and each file, plug-in and digest that its runs share only once."""

    def __init__(self, file: StudyFile, folder: str, overrides: Sequence[str], plugins: Sequence[str]):
        """`folder` is that of the study file."""
        self.file, self.folder, self.plugins = file, folder, plugins
        self._layers = cache(lambda *paths: read_seen_layers(paths, overrides))
        self._extensions = cache(_executed)
        self._source = cache(_file_source)

    def read(self, cell: Iterable[_Choice], layers: Iterable[Tables], values: Iterable[Tables]) -> Input:
        """Read the input of one run. Its layers, from below, are the files of the study and of the choices, `common`,
        the overlays, `layers`, and on top, as one layer, the `-o` lines and `values` of axes: one of these may contain
        a kind, and the other a key of that kind."""
        inputs = [*self.file.inputs, *(path for choice in cell for path in choice.inputs)]
        paths = [beside(self.folder, path) for path in [*inputs, *self.file.overlays]]
        *files, last = self._layers(*paths)
        below, over = files[: len(inputs)], files[len(inputs) :]
        common, *tables = map(self._seen_from_here, (self.file.common, *layers))
        top = reduce(deep, map(self._seen_from_here, values), last)
        stack, code = name_plugins([*below, common, *over, *tables, top], self.plugins)
        extensions = self._extensions(*code)  # which may define the kinds that the layers name
        # absolute, as the run reads its input from another folder
        return input_of(
            [{"name": self.file.name}, *(with_code_paths(layer, absolute) for layer in stack)], extensions
        )

    def _seen_from_here(self, table: Tables) -> Tables:
        return seen_from(self.folder, table)

    def with_seeds(
        self, first: Input, seeds: Sequence[int | None]
    ) -> Iterator[tuple[Input, tuple[Source, ...], str, Tables, str]]:
        """The fields of an entry from `run_input` on, of an input whose seed is the first of `seeds`, with each of
        them."""
        sources, hashed = _identified(first, self._source)
        tables, rules = resolved(first.experiment), _rules(first.experiment)
        for seed in seeds:
            run_input = first if seed in (None, first.experiment.seed) else first.with_seed(seed)
            if run_input.set_by_policy and run_input is not first:
                sources, hashed = _identified(run_input, self._source)
                tables = resolved(run_input.experiment)
            own = {"seed": run_input.experiment.seed}
            yield run_input, sources, identity(hashed | own), tables | own, rules


def _file_source(files: NamedFiles) -> Source:
    return files.source(content_of)


def _rules(experiment: Experiment) -> str:
    raised = raised_rules(experiment)
    return ", ".join([str(RULES), *(f"{table} {version}" for table, version in raised.items())])


def _identified(
    run_input: Input, source: Callable[[NamedFiles], Source] = _file_source
) -> tuple[tuple[Source, ...], Tables]:
    """(sources, all that is hashed but the seed) of a run. Its identity is the hash of all settings in force that can
    change a result, defaults included, of the contents (not the paths) of all files and plug-ins, and of the versions
    of the rules by which hpctrip and its components compute."""
    sources = [plugin.source for plugin in run_input.extensions.plugins]
    sources += map(source, files_of_input(run_input))
    experiment = run_input.experiment
    hashed = without(_settings(experiment, sources), added_keys(experiment)) | {"version": VERSION}
    besides = {"sources": sorted([source.key, source.digest] for source in sources), "rules": RULES}
    if raised := raised_rules(experiment):
        besides["raised rules"] = raised
    if packages := sorted(map(str, run_input.extensions.packages)):
        besides["packages"] = packages
    return tuple(sources), hashed | besides


def identity_of(run_input: Input) -> str:
    """The identity of a run with this input, by the present contents of its files."""
    return identity(_identified(run_input)[1] | {"seed": run_input.experiment.seed})


def _settings(experiment: Experiment, sources: Iterable[Source]) -> Tables:
    """{dotted key: value} of all keys that can change the result, except for those of `sources` that name no code: of
    a file, the content counts, and of code the name too."""
    values = without_folders(flat(resolved(experiment)))
    read = [source.key for source in sources if not code_name(values.get(source.key))]
    return without(values, [*neutral_keys(experiment), PLUGINS, *read])


def _executed(*paths: str) -> Extensions:
    """The user code of these plug-ins and of the installed packages, which is run."""
    extensions = Extensions.of(paths)
    extensions.run()
    return extensions


def _duplicates(grid: Iterable[Entry]) -> Iterator[tuple[str, Fault]]:
    """(name, fault) of each run that has the identity or the name of an earlier one."""
    identities: dict[str, Entry] = {}
    names: dict[str, Entry] = {}
    for entry in grid:
        same, namesake = identities.setdefault(entry.identity, entry), names.setdefault(entry.name, entry)
        if same is not entry:
            problem = f"is the same run as {same.variant!r}: no key that can change a result differs"
            yield entry.name, Fault(repr(entry.variant), problem, "leave one out, or fix what was to differ")
        elif namesake is not entry:
            problem = "is the name of two runs"
            yield entry.name, Fault(repr(entry.variant), problem, "give one of the labels another")


def _shared_outputs(grid: Iterable[Entry]) -> Iterator[tuple[str, Fault]]:
    """(name, fault) of each run that would replace what another one writes."""
    writers: dict[tuple[str, str], Entry] = {}
    for entry in grid:
        for name, callback in entry.run_input.experiment.callbacks.items():
            for key in callback.outputs_of_one_run if callback.enabled else ():
                value = getattr(callback, key)
                if value is not None and writers.setdefault((key, value), entry) is not entry:
                    place, hint = (
                        f"callbacks.{name}.{key}",
                        "leave it out: each run writes beside its results",
                    )
                    yield entry.name, Fault(place, f"names one output, {value}, for several runs", hint)


def _reported(faults: Mapping[Fault, Sequence[str]], place: str, place_shown: str) -> Iterator[Fault]:
    """The first faults of a grid, each at the first run that has it, and the number of the others."""
    for fault, names in itertools.islice(faults.items(), _MOST_FAULTS):
        others = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        is_named = fault.place in names[0].split(", ")  # the name of the run contains the faulty value
        parts = (place, f"{names[0]}{others}", "" if is_named else fault.place)
        yield Fault(": ".join(filter(None, parts)), fault.problem, fault.hint)
    if len(faults) > _MOST_FAULTS:
        yield Fault(place_shown, f"more faults: {len(faults) - _MOST_FAULTS:,}")
