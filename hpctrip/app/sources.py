"""What a run read and what code it ran, by digest: recorded with it, and compared where it goes on or is replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpctrip.app.experiment import Experiment, Input, experiment_of
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.plugins import Plugin
from hpctrip.base.sources import MADE_HERE, PLUGINS, NamedFiles, Source, differing, named_files
from hpctrip.learn.data.cached import digest_of_large
from hpctrip.learn.task import Task

WORKLOAD = "workload."
"""What the keys of all that training reads begin with."""
ANOTHER_RUN = "a run goes on with what it began with: bring it back, or start a new run"


def sources_of(given: Input, task: Task) -> list[Source]:
    """All that a run reads and the plug-ins that it runs. Raises InputError where a file cannot be read."""
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
    """What the input names that the simulated world is made of."""
    return (file for file in named_files(experiment) if not file.key.startswith(WORKLOAD))


def data_files(given: Input, task: Task) -> list[Source]:
    """The files behind what training sees, as they lie there: by them they are known before anything is read of them.
    Without those that cannot be told so."""
    named = [
        file
        for file in named_files(given.experiment.workload, WORKLOAD)
        if file.key.removeprefix(WORKLOAD) in task.digests
    ]
    found = [Source(file.key, file.value, file.digest(digest_of_large)) for file in named]
    return [source for source in found if source.digest]


def _learned(given: Input, task: Task) -> list[Source]:
    """What training sees: by the task's own digests, and by the files for keys of which it has none."""
    named = {file.key: file for file in named_files(given.experiment.workload, WORKLOAD)}
    found = {WORKLOAD + key: digest for key, digest in task.digests.items()}
    prepared = [
        Source(key, named[key].value if key in named else MADE_HERE, digest) for key, digest in found.items()
    ]
    return [*prepared, *(file.source() for key, file in named.items() if key not in found)]


def refuse_others(recorded: Iterable[Source], found: Iterable[Source], place: object) -> list[str]:
    """Raise InputError naming every file whose content is not that recorded at `place`. Data that were made from the
    input, by this machine's libraries, may differ; what to say of them is returned."""
    pairs = differing(recorded, found)
    faults = [
        Fault(
            after.key,
            f"{after.path} has the digest {after.digest}, in {place} it has {before.digest}",
            ANOTHER_RUN,
        )
        for before, after in pairs
        if after.path != MADE_HERE
    ]
    if faults:
        raise InputError(faults=faults)
    return [
        f"warning: the data of {after.key}, made here, have the digest {after.digest}, not {before.digest}: "
        "the numbers may differ"
        for before, after in pairs
    ]


def recorded_plugins(recorded: Iterable[Source], stored: Mapping[str, Any]) -> list[Source]:
    """The plug-ins of a run, from its sources and its stored input; without digests where an older hpctrip wrote it."""
    plugins = [source for source in recorded if source.key == PLUGINS]
    names = stored.get("plugins") or []
    return plugins or [
        Source(PLUGINS, str(name), "") for name in (names if isinstance(names, list) else [names])
    ]


def other_plugins(recorded: Sequence[Source], given: Sequence[Plugin]) -> str:
    """What is wrong with the plug-ins that the user gave, for a run that was made with `recorded`; empty: nothing.

    They are the same where their contents are; where they lie does not matter.
    """
    made_with = ", ".join(_named(source) for source in recorded)
    if recorded and not given:
        return f"the run was made with plug-ins, which are code and never taken from where they were found: {made_with}"
    known = {source.digest for source in recorded}
    now = [plugin.source for plugin in given]
    if known == {source.digest for source in now} or "" in known:
        return ""
    return (
        f"the run was made with {made_with or 'no plug-in'}, given {'is' if len(now) == 1 else 'are'} "
        + ", ".join(map(_named, now))
    )


def _named(source: Source) -> str:
    return f"{source.path!r} ({f'digest {source.digest}' if source.digest else 'digest not recorded'})"
