"""Provenance of a run: the files, data and plug-ins that it read, with digests, recorded to be compared on resume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpctrip.config.plugins import Plugin
from hpctrip.config.sources import MADE_HERE, PLUGINS, NamedFiles, Source, named_files
from hpctrip.learn.task import Task
from hpctrip.runner.experiment import Experiment, Input, experiment_of

WORKLOAD = "workload."
"""Prefix of the input keys that name training data."""


def sources_of(run_input: Input, task: Task) -> list[Source]:
    """All sources of a run: plug-ins, files and prepared data. Raises InputError where a file cannot be read."""
    return [
        *(plugin.source for plugin in run_input.extensions.plugins),
        *world_sources(run_input),
        *training_sources(run_input, task),
    ]


def world_sources(run_input: Input) -> list[Source]:
    """The files of the simulated world, with digests. Raises InputError where one cannot be read."""
    return [file.source() for file in files_of_world(run_input)]


def files_of_world(run_input: Input) -> list[NamedFiles]:
    """The files of the simulated world, including those of sites that the policy replaces."""
    named = list(world_files(run_input.experiment))
    if (
        "sites" in run_input.set_by_policy
    ):  # the policy has read the number of these sites before replacing them
        named += named_files(experiment_of(run_input.tables).sites, "sites.")
    return named


def files_of_input(run_input: Input) -> list[NamedFiles]:
    """All files that an input names, including its training data."""
    return [*files_of_world(run_input), *named_files(run_input.experiment.workload, WORKLOAD)]


def replayed_sources(experiment: Experiment) -> list[Source]:
    """The files that a replay of this experiment reads."""
    return [file.source() for file in world_files(experiment)]


def world_files(experiment: Experiment) -> Iterable[NamedFiles]:
    """The files of the simulated world that an input names."""
    return (file for file in named_files(experiment) if not file.key.startswith(WORKLOAD))


def training_sources(run_input: Input, task: Task) -> list[Source]:
    """The sources of training: with the digests that the task computed, else with those of the files of a key."""
    named = {file.key: file for file in named_files(run_input.experiment.workload, WORKLOAD)}
    digests = {WORKLOAD + key: digest for key, digest in task.digests.items()}
    prepared = [
        Source(key, named[key].value if key in named else MADE_HERE, digest)
        for key, digest in digests.items()
    ]
    return [*prepared, *(file.source() for key, file in named.items() if key not in digests)]


def recorded_plugins(sources: Iterable[Source]) -> list[Source]:
    """The plug-ins among the sources of a run."""
    return [source for source in sources if source.key == PLUGINS]


def plugin_mismatch(recorded: Sequence[Source], plugins: Sequence[Plugin]) -> str:
    """Error text where the user's `plugins` differ from those that a run has `recorded`; empty where they are equal.

    Plug-ins are compared by the digests of their contents, not by their paths.
    """
    made_with = ", ".join(_named(source) for source in recorded)
    if recorded and not plugins:
        return f"the run was made with plug-ins, which are code and never run because a file names them: {made_with}"
    now = [plugin.source for plugin in plugins]
    if {source.digest for source in recorded} == {source.digest for source in now}:
        return ""
    return (
        f"the run was made with {made_with or 'no plug-in'}, given {'is' if len(now) == 1 else 'are'} "
        + ", ".join(map(_named, now))
    )


def _named(source: Source) -> str:
    return f"{source.path!r} (digest {source.digest})"
