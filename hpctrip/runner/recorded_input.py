"""The input recorded in a results file or checkpoint: resumed runs reuse it, and other inputs are compared with it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctrip.base.errors import Fault, InputError, faults_at
from hpctrip.config.identity import Flat, differing, flat, neutral_keys, without
from hpctrip.config.inputs import Tables, resolved
from hpctrip.config.plugins import Extensions
from hpctrip.config.sources import PLUGINS, Source, read_sources
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.reader import Run
from hpctrip.runner.cache.learning_key import learned_tables
from hpctrip.runner.experiment import Experiment, Input, merge_layers, resolve
from hpctrip.runner.provenance import plugin_mismatch, recorded_plugins

MAY_DIFFER = ("stop",)
"""Tables that may differ in a resumed run, besides the keys that change no result: the stop rules."""


@dataclass(frozen=True)
class RecordedInput:
    """The input that a results file or checkpoint records, and the sources that its run read."""

    place: str
    """Path of the file, for messages."""
    tables: Tables
    """The merged input."""
    sources: tuple[Source, ...]

    @classmethod
    def _of(cls, place: str, input_toml: str, metadata: Mapping[str, Any]) -> RecordedInput:
        try:
            tables = tomllib.loads(input_toml)
        except (ValueError, TypeError) as error:
            raise InputError(place, f"holds no valid input ({error})", "restore a copy") from None
        return cls(place, tables, tuple(read_sources(metadata.get("sources", []), place)))

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, file: Path) -> RecordedInput:
        """The input that a checkpoint records. Raises InputError where it is no valid TOML."""
        return cls._of(str(file), checkpoint.input_toml, checkpoint.metadata)

    @classmethod
    def from_results(cls, run: Run) -> RecordedInput:
        """The input that a results file records. Raises InputError where it is no valid TOML."""
        return cls._of(str(run.path), run.input_toml, run.meta)

    def overlaid(self, layers: Sequence[Tables], extensions: Extensions) -> Input:
        """The recorded input, overlaid with the user's `layers`.

        A plug-in is never run because a file names it: the user names it again, and this method runs the code in
        `extensions`. Raises InputError where these plug-ins are not those of the run, and for bad input.
        """
        self.refuse_other_plugins(extensions)
        extensions.run()
        tables = {name: table for name, table in self.tables.items() if name != PLUGINS}
        return resolve(merge_layers(tables, layers), extensions)

    def refuse_other_plugins(self, extensions: Extensions) -> None:
        """Raise InputError where the user's plug-ins are not those of the run."""
        if problem := plugin_mismatch(recorded_plugins(self.sources), extensions.plugins):
            raise InputError(self.place, problem, "give the same again, e.g. --plugin PATH")

    def refuse_other_input(self, run_input: Input) -> None:
        """Raise InputError where plug-ins differ, and for every key that differs although it changes the results."""
        self.refuse_other_plugins(run_input.extensions)
        may_differ = [*neutral_keys(run_input.experiment), *MAY_DIFFER]

        def compared(experiment: Experiment) -> Flat:
            return without(flat(resolved(experiment)), may_differ)

        self._refuse_differing(run_input, compared, "only stop rules may change")

    def refuse_other_learning(self, run_input: Input) -> None:
        """Raise InputError for every input key that differs and on which training depends."""
        hint = "training sees it, so other rounds would have to be trained: use `run`"
        self._refuse_differing(run_input, learned_tables, hint)

    def _refuse_differing(self, run_input: Input, compared: Callable[[Experiment], Flat], hint: str) -> None:
        with faults_at(self.place):
            recorded = resolve(self.tables).experiment
        before, after = compared(recorded), compared(run_input.experiment)
        faults = [
            Fault(key, f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {self.place}", hint)
            for key in differing([before, after])
        ]
        if faults:
            raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)
