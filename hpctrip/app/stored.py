"""What a file says of the run that wrote it, and whether another input means the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctrip.app.experiment import Experiment, Input, resolve
from hpctrip.app.learning import learned_tables
from hpctrip.app.sources import other_plugins, recorded_plugins
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import Flat, differing, flat, neutral_keys, without
from hpctrip.base.inputs import Tables, parsed, resolved
from hpctrip.base.plugins import Extensions
from hpctrip.base.sources import Source, read_sources
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.reader import Run

MAY_DIFFER = ("stop",)
"""What may change between the parts of one run besides the keys that change no result: when it ends."""


@dataclass(frozen=True)
class Stored:
    """What a file says of the run that wrote it. Nothing in it is run."""

    place: str
    tables: Tables
    """The merged input."""
    read: tuple[Source, ...]
    """What the run read."""

    @classmethod
    def _of(cls, place: str, input_toml: str, sources: object) -> Stored:
        try:
            tables = parsed(input_toml)
        except (ValueError, TypeError) as error:
            raise InputError(place, f"holds no valid input ({error})", "resume from the other one") from None
        return cls(place, tables, tuple(read_sources(sources, place)))

    @classmethod
    def in_checkpoint(cls, found: Checkpoint, file: Path) -> Stored:
        """InputError where it is unclear."""
        return cls._of(str(file), found.input_toml, found.about.get("sources", []))

    @classmethod
    def in_results(cls, run: Run) -> Stored:
        """InputError where it is unclear."""
        return cls._of(str(run.path), run.input_toml, run.meta["sources"])

    def refuse_other_plugins(self, extensions: Extensions) -> None:
        """Raise InputError where the user's plug-ins are not those of the run."""
        if problem := other_plugins(recorded_plugins(self.read, self.tables), extensions.plugins):
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
        way_out = "training sees it, so other rounds would have to be trained: use `run`"
        self._refuse_differing(given, learned_tables, way_out)

    def _refuse_differing(self, given: Input, compared: Callable[[Experiment], Flat], way_out: str) -> None:
        before, after = (compared(e) for e in (resolve(self.tables).experiment, given.experiment))
        faults = [
            Fault(key, f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {self.place}", way_out)
            for key in differing([before, after])
        ]
        if faults:
            raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)
