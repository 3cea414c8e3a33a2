"""The sources of a run by digest, files and plug-ins: they are recorded, and compared where it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpctrip.config.plugins import Plugin
from hpctrip.config.sources import MADE_HERE, PLUGINS, NamedFiles, Source, named_files
from hpctrip.learn.task import Task
from hpctrip.runner.experiment import Experiment, Input, experiment_of

WORKLOAD = "workload."
"""The prefix of the keys of all that training reads."""


def sources_of(given: Input, task: Task) -> list[Source]:
    """The sources of a run: files, prepared data and plug-ins. Raises InputError where a file cannot be read."""
    return [
        *(plugin.source for plugin in given.extensions.plugins),
        *world_sources(given),
        *_learned(given, task),
    ]


def world_sources(given: Input) -> list[Source]:
    """The files that the simulated world is made of. Raises InputError where one cannot be read."""
    return [file.source() for file in files_of_world(given)]


def files_of_world(given: Input) -> list[NamedFiles]:
    """The files that the simulated world is made of, those of sites that the policy replaces included."""
    named = list(world_files(given.experiment))
    if "sites" in given.set_by_policy:  # the policy replaces the sites, after it has counted them
        named += named_files(experiment_of(given.tables).sites, "sites.")
    return named


def files_of_input(given: Input) -> list[NamedFiles]:
    """All files that an input names, those of its data included."""
    return [*files_of_world(given), *named_files(given.experiment.workload, WORKLOAD)]


def replayed_sources(experiment: Experiment) -> list[Source]:
    """The files that a replay of this experiment reads."""
    return [file.source() for file in world_files(experiment)]


def world_files(experiment: Experiment) -> Iterable[NamedFiles]:
    """The files of the simulated world that an input names."""
    return (file for file in named_files(experiment) if not file.key.startswith(WORKLOAD))


def _learned(given: Input, task: Task) -> list[Source]:
    """The sources of training: by the task's own digests, and by the files for keys of which it has none."""
    named = {file.key: file for file in named_files(given.experiment.workload, WORKLOAD)}
    found = {WORKLOAD + key: digest for key, digest in task.digests.items()}
    prepared = [
        Source(key, named[key].value if key in named else MADE_HERE, digest) for key, digest in found.items()
    ]
    return [*prepared, *(file.source() for key, file in named.items() if key not in found)]


def recorded_plugins(sources: Iterable[Source]) -> list[Source]:
    """The plug-ins among the sources of a run."""
    return [source for source in sources if source.key == PLUGINS]


def other_plugins(recorded: Sequence[Source], given: Sequence[Plugin]) -> str:
    """The problem with the user's plug-ins, `given`, for a run that was made with `recorded`; empty: none.

    They are the same where their contents are; where they lie does not matter.
    """
    made_with = ", ".join(_named(source) for source in recorded)
    if recorded and not given:
        return f"the run was made with plug-ins, which are code and never run because a file names them: {made_with}"
    known = {source.digest for source in recorded}
    now = [plugin.source for plugin in given]
    if known == {source.digest for source in now}:
        return ""
    return (
        f"the run was made with {made_with or 'no plug-in'}, given {'is' if len(now) == 1 else 'are'} "
        + ", ".join(map(_named, now))
    )


def _named(source: Source) -> str:
    return f"{source.path!r} (digest {source.digest})"
