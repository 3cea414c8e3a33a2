"""Provenance of a run: its input and the files, data and plug-ins that it read, compared when it is continued."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpctrip.base.errors import Fault, InputError, faults_at
from hpctrip.config.identity import Flat, differing, flat, neutral_keys, unlearned_keys, without
from hpctrip.config.inputs import Tables, resolved
from hpctrip.config.plugins import Extensions, Plugin, without_folders
from hpctrip.config.sources import MADE_HERE, PLUGINS, NamedFiles, Source, named_files, read_sources
from hpctrip.learn.task import Task
from hpctrip.runner.experiment import Experiment, Input, experiment_of, merge_layers, resolve

WORKLOAD = "workload."
"""Prefix of the input keys that name training data."""
MAY_DIFFER = ("stop",)
"""Tables that may differ in a resumed run, besides the keys that change no result: the stop rules."""


def world_files(experiment: Experiment) -> list[NamedFiles]:
    """The files of the simulated world that an experiment names."""
    return [file for file in named_files(experiment) if not file.key.startswith(WORKLOAD)]


def files_of_input(run_input: Input) -> list[NamedFiles]:
    """All files that an input names, its training data last, with those of sites that the policy replaces: it has read
    their number before."""
    experiment, replaced = run_input.experiment, "sites" in run_input.set_by_policy
    return [
        *world_files(experiment),
        *(named_files(experiment_of(run_input.tables).sites, "sites.") if replaced else []),
        *named_files(experiment.workload, WORKLOAD),
    ]


def world_sources(run_input: Input) -> list[Source]:
    """The files of the simulated world, with digests. Raises InputError where one cannot be read."""
    return [file.source() for file in files_of_input(run_input) if not file.key.startswith(WORKLOAD)]


def sources_of(run_input: Input, task: Task) -> list[Source]:
    """All sources of a run: plug-ins, files of the world, and training data, whose digests are those that the task
    computed, else those of the files of a key. Raises InputError where a file cannot be read."""
    named = {file.key: file for file in named_files(run_input.experiment.workload, WORKLOAD)}
    digests = {WORKLOAD + key: digest for key, digest in task.digests.items()}
    return [
        *(plugin.source for plugin in run_input.extensions.plugins),
        *world_sources(run_input),
        *(
            Source(key, named[key].value if key in named else MADE_HERE, digest)
            for key, digest in digests.items()
        ),
        *(file.source() for key, file in named.items() if key not in digests),
    ]


def learned_tables(experiment: Experiment) -> Flat:
    """The keys that training sees. Data count by their content, which the input does not hold: the keys that name them
    are left out."""
    named = [file.key for file in named_files(experiment.workload, WORKLOAD)]
    return without_folders(without(flat(resolved(experiment)), [*unlearned_keys(experiment), *named]))


def plugin_mismatch(sources: Iterable[Source], plugins: Sequence[Plugin]) -> str:
    """Error text where the user's `plugins` differ from those among the `sources` of a run; empty where they are equal.

    Plug-ins are compared by the digests of their contents, not by their paths.
    """
    recorded, now = [s for s in sources if s.key == PLUGINS], [plugin.source for plugin in plugins]
    made_with, present = (
        ", ".join(f"{source.path!r} (digest {source.digest})" for source in each) for each in (recorded, now)
    )
    if recorded and not plugins:
        return f"the run was made with plug-ins, which are code and never run because a file names them: {made_with}"
    if {source.digest for source in recorded} == {source.digest for source in now}:
        return ""
    return f"the run was made with {made_with or 'no plug-in'}, given {'is' if len(now) == 1 else 'are'} {present}"


@dataclass(frozen=True)
class RecordedInput:
    """The input that a results file or checkpoint records, and the sources that its run read."""

    place: str
    """Path of the file, for messages."""
    tables: Tables
    """The merged input."""
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, place: object, input_toml: str, metadata: Mapping[str, Any]) -> RecordedInput:
        """The input that the file at `place` records, from its text and its attributes or metadata."""
        return cls(str(place), tomllib.loads(input_toml), tuple(read_sources(metadata.get("sources", []))))

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
        if problem := plugin_mismatch(self.sources, extensions.plugins):
            raise InputError(self.place, problem, "give the same again, e.g. --plugin PATH")

    def refuse_other_input(self, run_input: Input) -> None:
        """Raise InputError where plug-ins differ, and for every key that differs although it changes the results."""
        self.refuse_other_plugins(run_input.extensions)
        may_differ = [*neutral_keys(run_input.experiment), *MAY_DIFFER]

        def compared(experiment: Experiment) -> Flat:
            return without_folders(without(flat(resolved(experiment)), may_differ))

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
