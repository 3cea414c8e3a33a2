"""The runs that a calibration consists of: its cohort sizes, and its bars in every world that may be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from hpctrip.app.experiment import Experiment, Input, resolve
from hpctrip.base.errors import InputError, faults_at
from hpctrip.base.identity import flat, unlearned_keys, without
from hpctrip.base.inputs import Tables, deep, nested, read_layers, resolved, validate
from hpctrip.base.text import shown as shown_value
from hpctrip.study.calibrate.file import Bar, CalibrationFile
from hpctrip.study.file import MOST_RUNS, Axis, StudyFile, Variant
from hpctrip.study.grid import Entry, entries, shown
from hpctrip.study.studies import Asked
from hpctrip.study.sweep import split

Values = tuple[Any, ...]
"""One of every constant, in the order of the file, as the experiment has them (SI)."""


@dataclass(frozen=True)
class Runs:
    """The runs of one calibration file."""

    file: CalibrationFile
    place: str
    """Where the file lies."""
    asked: Asked

    @classmethod
    def read(cls, place: str, asked: Asked) -> Runs:
        """Of the file at `place`. Raises InputError with all that is wrong with it."""
        (tables, _) = read_layers([place], ())
        lines, several = split(asked.overrides, lambda line: True)
        if several:
            tables |= {"seeds": several["seed"]}
            tables["small"] = {k: v for k, v in tables.get("small", {}).items() if k != "seeds"}
        with faults_at(place):
            file = validate(tables, CalibrationFile)
        number = math.prod(len(constant.tried(asked.small)) for constant in file.constant)
        if number > MOST_RUNS:
            problem = f"has {shown_value(number)} combinations of values, {MOST_RUNS:,} are the most"
            raise InputError(f"{place}: constant", problem, "try fewer values of some, or fit them in turn")
        return cls(file, place, Asked(asked.folder, lines, asked.plugins, asked.small))

    @property
    def folder_name(self) -> str:
        """The folder of the result, below that of the runs."""
        return f"calibration-{self.file.name}{'-small' if self.asked.small else ''}"

    @property
    def keys(self) -> list[str]:
        """The constants, in the order of the file."""
        return [constant.key for constant in self.file.constant]

    @cached_property
    def default(self) -> Values:
        """The constants as the first bar's input has them."""
        return self._values(self.first.experiment)

    @cached_property
    def points(self) -> list[Values]:
        """All combinations of the constants' values, and their defaults, each once."""
        tried = [constant.tried(self.asked.small) for constant in self.file.constant]
        one_by_one = [
            [self._typed(key, value) for value in values]
            for key, values in zip(self.keys, tried, strict=True)
        ]
        return list(dict.fromkeys([*itertools.product(*one_by_one), self.default]))

    @cached_property
    def learned(self) -> list[int]:
        """The places of the constants that training sees."""
        unlearned = unlearned_keys(self.first.experiment)
        return [place for place, key in enumerate(self.keys) if without({key: 1}, unlearned)]

    def learned_of(self, values: Values) -> Values:
        """The constants that training sees: runs that share them can share what was trained."""
        return tuple(values[place] for place in self.learned)

    @cached_property
    def worlds(self) -> list[Values]:
        """Every combination of the constants that training sees."""
        return list(dict.fromkeys(map(self.learned_of, self.points)))

    def sizes(self, targets: Mapping[Values, float | str], sizes: Sequence[int]) -> dict[Values, list[Entry]]:
        """The sweep's runs in every world, up to its target."""
        sweep = self.file.sweep
        variants = {
            world: [
                self._variant(
                    f"k = {k}", world, sweep.inputs, {}, self._learned(world, target), nested(sweep.key, k)
                )
                for k in sizes
            ]
            for world, target in targets.items()
        }
        return self._entries_of(variants)

    def fixed_bars(self, targets: Mapping[Values, float]) -> dict[Values, list[Entry]]:
        """The bars whose cohorts do not follow the constants, in every world, up to its target."""
        return self._entries_of(
            {
                world: [
                    self._of_bar(bar, world, self._learned(world, target))
                    for bar in self.file.bar
                    if not bar.dynamic
                ]
                for world, target in targets.items()
            }
        )

    def at_point(self, values: Values, target: float) -> list[Entry]:
        """The dynamic bars with these constants."""
        tables = reduce(deep, map(nested, self.keys, values), _target(target))
        return self._entries([self._of_bar(bar, values, tables) for bar in self.file.bar if bar.dynamic])

    def bars(self, world: Values) -> dict[str, list[Experiment]]:
        """{bar: its seeds} in one world, with the other constants as the inputs have them."""
        tables = self._learned(world, "none")
        found: dict[str, list[Experiment]] = {bar.label: [] for bar in self.file.bar}
        for bar in self.file.bar:
            of_bar = self._entries([self._of_bar(bar, world, tables)])
            found[bar.label] = [entry.given.experiment for entry in of_bar]
        return found

    @cached_property
    def first(self) -> Input:
        """The first bar's, as it runs."""
        return self._entries([self._of_bar(self.file.bar[0], (), {})])[0].given

    def _values(self, experiment: Experiment) -> Values:
        known = flat(resolved(experiment))
        if missing := [key for key in self.keys if known.get(key) is None]:
            raise InputError(f"{self.place}: constant", f"{', '.join(missing)}: no such key has a value")
        return tuple(known[key] for key in self.keys)

    def _typed(self, key: str, value: Any) -> Any:
        """A value as the experiment has it: SI, checked."""
        tables = deep(self.first.tables, nested(key, value))
        return flat(resolved(resolve(tables, self.first.extensions).experiment))[key]

    def _learned(self, world: Values, target: float | str) -> Tables:
        keys = [self.keys[place] for place in self.learned]
        return reduce(deep, map(nested, keys, world), _target(target))

    def _of_bar(self, bar: Bar, values: Values, tables: Tables) -> Variant:
        return self._variant(bar.label, values, bar.inputs, bar.small, bar.tables, tables)

    def _variant(
        self, label: str, values: Values, inputs: list[str], small: Tables, *tables: Tables
    ) -> Variant:
        called = " ".join([label, *map(shown, values)])[:80]
        return Variant(label=called, inputs=inputs, small=small, **reduce(deep, tables, {}))

    def _entries_of(self, variants: Mapping[Values, list[Variant]]) -> dict[Values, list[Entry]]:
        return {world: self._entries(of_world) for world, of_world in variants.items()}

    def _entries(self, variants: Sequence[Variant]) -> list[Entry]:
        if not variants:
            return []
        file = self.file
        study = StudyFile(
            name=file.name,
            seeds=file.seeds,
            common=file.common,
            small=file.small,
            axis=[Axis(name="bar", variants=[*variants])],
        )
        return entries(study, self.place, self.asked.overrides, self.asked.plugins, self.asked.small)


def _target(target: float | str) -> Tables:
    return {"stop": {"target_accuracy": target}}


def at(experiment: Experiment, constants: Mapping[str, Any]) -> Experiment:
    """The same input with other values of some keys, which are those of an input that was checked."""
    for key, value in constants.items():
        experiment = _with(experiment, key.split("."), value)
    return experiment


def _with(component: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    return component.model_copy(
        update={first: _with(getattr(component, first), rest, value) if rest else value}
    )
