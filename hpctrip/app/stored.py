"""What a file says of the run that wrote it, what is taken up of its input, and whether another one means the same."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpctrip.app.experiment import Experiment, Input, experiment_of, laid_over, resolve
from hpctrip.app.learning import learned_tables
from hpctrip.app.sources import WORKLOAD, files_of_world, other_plugins, recorded_plugins
from hpctrip.app.users_own import left_out, without_users_own
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import Flat, differing, flat, neutral_keys, without
from hpctrip.base.inputs import Tables, resolved
from hpctrip.base.plugins import Extensions
from hpctrip.base.sources import (
    NamedFiles,
    Source,
    digest_of_files,
    named_files,
    read_sources,
    refuse_unknown,
)
from hpctrip.learn.data.cached import digest_of_large
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
    data_files: tuple[Source, ...] = ()
    """The files behind its data."""

    @classmethod
    def _of(cls, place: str, input_toml: str, about: Mapping[str, Any]) -> Stored:
        try:
            tables = tomllib.loads(input_toml)
        except (ValueError, TypeError) as error:
            raise InputError(place, f"holds no valid input ({error})", "resume from the other one") from None
        read, files = (read_sources(about.get(name, []), place) for name in ("sources", "data_files"))
        return cls(place, tables, tuple(read), tuple(files))

    @classmethod
    def in_checkpoint(cls, found: Checkpoint, file: Path) -> Stored:
        """InputError where it is unclear."""
        return cls._of(str(file), found.input_toml, found.about)

    @classmethod
    def in_results(cls, run: Run) -> Stored:
        """InputError where it is unclear."""
        return cls._of(str(run.path), run.input_toml, run.meta)

    def taken_up(self, layers: Sequence[Tables], extensions: Extensions) -> Input:
        """The input, but for what is the user's own, with the user's `layers` laid over it; `extensions` are given and
        run. Raises InputError where the plug-ins are not those of the run, where it is no valid input, and where files
        that it names, and that the user does not, are not those that the run read."""
        self.refuse_other_plugins(extensions)
        extensions.run()
        tables = laid_over(without_users_own(self.tables), layers)
        users = flat(laid_over({}, layers))

        def refuse(
            named: Iterable[NamedFiles], of: Callable[[Sequence[Path]], str] = digest_of_files
        ) -> None:
            self._refuse_unknown((file for file in named if file.key not in users), of)

        refuse(named_files(experiment_of(tables).sites, "sites."))
        given = resolve(tables, extensions)  # which reads the sites where the policy counts them
        refuse(files_of_world(given))
        refuse(named_files(given.experiment.workload, WORKLOAD), digest_of_large)
        return given

    def _experiment(self) -> Experiment:
        """InputError at the file where its input is none."""
        try:
            return experiment_of(self.tables)
        except InputError as error:
            raise InputError(
                self.place, f"holds no valid input ({error.faults[0]})", "restore a copy"
            ) from None

    def left_out(self, layers: Sequence[Tables]) -> str:
        """What to say of what is not taken up."""
        return left_out(self.tables, layers, self.place)

    def _refuse_unknown(self, named: Iterable[NamedFiles], of: Callable[[Sequence[Path]], str]) -> None:
        way_out = ", or name your own with -o, or start from your own input: run INPUT --resume --out RUN.h5"
        refuse_unknown(named, (*self.read, *self.data_files), self.place, of, way_out)

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
        sites, own = (
            [*named_files(experiment.sites, "sites.")]
            for experiment in (self._experiment(), experiment_of(given.tables))
        )
        self._refuse_unknown((file for file in sites if file not in own), digest_of_files)
        before, after = (compared(e) for e in (resolve(self.tables).experiment, given.experiment))
        faults = [
            Fault(key, f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {self.place}", way_out)
            for key in differing([before, after])
        ]
        if faults:
            raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)
