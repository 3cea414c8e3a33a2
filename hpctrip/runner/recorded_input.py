"""The input recorded in a results file or checkpoint: a run that goes on takes it up, and other inputs are compared
with it."""

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
from hpctrip.runner.experiment import Experiment, Input, laid_over, resolve
from hpctrip.runner.provenance import other_plugins, recorded_plugins

MAY_DIFFER = ("stop",)
"""Tables that may change between the parts of one run, besides the keys that change no result: when it ends."""


@dataclass(frozen=True)
class RecordedInput:
    """The input that a results file or checkpoint records, and the sources that its run read."""

    place: str
    """The file."""
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
        return cls._of(str(file), checkpoint.input_toml, checkpoint.about)

    @classmethod
    def from_results(cls, run: Run) -> RecordedInput:
        """The input that a results file records. Raises InputError where it is no valid TOML."""
        return cls._of(str(run.path), run.input_toml, run.meta)

    def overlaid(self, layers: Sequence[Tables], extensions: Extensions) -> Input:
        """The recorded input with the user's `layers` laid over it.

        Plug-ins are code and are never imported because a file names them: the user names them again, `extensions`
        holds them, and they are run here. Raises InputError where they are not those of the run, and for bad input.
        """
        self.refuse_other_plugins(extensions)
        extensions.run()
        tables = {name: table for name, table in self.tables.items() if name != PLUGINS}
        return resolve(laid_over(tables, layers), extensions)

    def refuse_other_plugins(self, extensions: Extensions) -> None:
        """Raise InputError where the user's plug-ins are not those of the run."""
        if problem := other_plugins(recorded_plugins(self.sources), extensions.plugins):
            raise InputError(self.place, problem, "give the same again, e.g. --plugin PATH")

    def refuse_other_input(self, given: Input) -> None:
        """Raise InputError where the plug-ins differ, or naming every key that differs and must not."""
        self.refuse_other_plugins(given.extensions)
        may_differ = [*neutral_keys(given.experiment), *MAY_DIFFER]

        def compared(experiment: Experiment) -> Flat:
            return without(flat(resolved(experiment)), may_differ)

        self._refuse_differing(given, compared, "only stop rules may change")

    def refuse_other_learning(self, given: Input) -> None:
        """Raise InputError naming every key that training sees and that differs."""
        hint = "training sees it, so other rounds would have to be trained: use `run`"
        self._refuse_differing(given, learned_tables, hint)

    def _refuse_differing(self, given: Input, compared: Callable[[Experiment], Flat], hint: str) -> None:
        with faults_at(self.place):
            recorded = resolve(self.tables).experiment
        before, after = compared(recorded), compared(given.experiment)
        faults = [
            Fault(key, f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {self.place}", hint)
            for key in differing([before, after])
        ]
        if faults:
            raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)
