"""Verifies results files: checks that the numbers are consistent, then recomputes the simulated ones.

Nothing is trained: the results of training (accuracies, measured wall times) are taken from the file. Everything that
follows from them and the input (world, views, cohorts, arrivals, clock) is computed again by the code of the run.
"""

from __future__ import annotations

import copy
import functools
import itertools
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import is_pattern
from hpctrip.base.text import printable
from hpctrip.config.inputs import Tables
from hpctrip.config.plugins import Extensions, Plugin, installed
from hpctrip.config.sources import PLUGINS, NamedFiles, Source, changed_sources, read_sources
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile, open_results
from hpctrip.record.schema import tables
from hpctrip.record.verify import MOST_FAULTS, unequal, verify
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.provenance import plugin_mismatch, site_columns, world_files
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Simulation, State


class NotReplayable(Exception):
    """Raised where a consistent results file cannot be replayed on this machine."""


@dataclass(frozen=True)
class Verification:
    """The faults of one results file. `str` gives one line."""

    path: str
    faults: list[Fault]
    """At most MOST_FAULTS."""
    replayed: bool
    """Whether the simulated numbers were recomputed."""
    not_replayed: str = ""
    """Reason why a consistent file was not replayed although that was requested; empty otherwise."""

    def __str__(self) -> str:
        more = " or more" if len(self.faults) >= MOST_FAULTS else ""
        if self.faults:
            result = f"{len(self.faults):,} fault(s){more}"
        elif self.not_replayed:
            reason = printable(self.not_replayed, 500)
            result = f"not verified: consistent, but its simulated numbers were not replayed: {reason}"
        else:
            result = "ok" if self.replayed else "ok, not replayed"
        return f"{printable(self.path)}: {result}"

    def values(self) -> dict[str, Any]:
        """The fields as {name: value}, for JSON."""
        return {"ok": not self.faults and not self.not_replayed, **asdict(self)}


def verify_file(file: Path, replayed: bool, plugins: Sequence[Plugin], data: Sequence[str]) -> Verification:
    """Verify a results file. If it is consistent and `replayed` is true, its simulated numbers are recomputed with the
    user's `plugins` and the input's files as found in `data` (`located`). Raises InputError where it is no results
    file."""
    path = str(file)
    try:
        results = open_results(file)
        faults = verify(results)
    except DamagedError as error:
        faults = error.faults
    if faults or not replayed:
        return Verification(path, faults, replayed=False)
    try:
        again = pkgutil.resolve_name(results.replayed_by)(results, plugins, data)
    except NotReplayable as reason:
        return Verification(path, [], replayed=False, not_replayed=str(reason))
    return Verification(path, again, replayed=True)


@np.errstate(all="ignore")  # values that are not finite compare as different, so no warning is needed
def replay(run: Run, plugins: Sequence[Plugin] = (), data: Sequence[str] = ()) -> list[Fault]:
    """Recompute the simulated numbers of a run; returns those that differ, at most MOST_FAULTS.

    `plugins` are those that the user named; the ones whose digests the run recorded are run. `data` are the files and
    folders in which files of the input may be opened (`located`). Raises NotReplayable where a plug-in or file of the
    run is missing, or its input is not valid.
    """
    history = run.history()
    try:
        recorded = read_sources(run.meta["sources"])
        run_plugins(recorded, run, plugins)
        experiment = experiment_of(with_files(run.input, world_files(experiment_of(run.input)), data))
        if other := other_files(run, recorded, [file.source() for file in world_files(experiment)]):
            return other  # all other differences would follow from these
        if experiment.checked_num_sites() != len(run.sites):  # checked before a world of that size is built
            raise InputError(
                "sites", f"the input leads to {experiment.checked_num_sites()}, not {len(run.sites)}"
            )
        # sizes of shards are read from the file, so that no training data are needed
        sizes = run.sites.get("num_samples", pd.Series(dtype="int64")).to_numpy()
        labels = run.sites.filter(regex=r"^label_\d+$").to_numpy()
        if experiment.policy.sees_labels and not labels.size:
            raise NotReplayable("the file does not hold the labels of sites that its policy saw")
        simulation = experiment.simulation(
            run.meta["num_params"] or 1, sizes, run.meta["num_buffers"], labels
        )
    except InputError as error:
        raise NotReplayable(str(error.faults[0])) from None
    faults = itertools.chain(_sites(run, simulation), _rounds(run, simulation, history))
    return list(itertools.islice(faults, MOST_FAULTS))


def run_plugins(recorded: Sequence[Source], run: ResultsFile, plugins: Sequence[Plugin]) -> None:
    """Run the user's plug-ins that the run recorded. Raises NotReplayable where recorded ones are missing."""
    digests = {source.digest for source in recorded if source.key == PLUGINS}
    # several files are verified at once, and not all need the same plug-ins
    own = tuple(plugin for plugin in plugins if plugin.source.digest in digests)
    candidates = own or (tuple(plugins) if digests else ())
    if problem := plugin_mismatch(recorded, candidates):
        raise NotReplayable(f"{problem}; name the same, e.g. --plugin PATH")
    Extensions(candidates, installed()).run()


def other_files(run: ResultsFile, recorded: Sequence[Source], read: Sequence[Source]) -> list[Fault]:
    """One fault for every file read by the replay whose digest is not the recorded one."""
    return [
        Fault(
            f"{run.path}: {before.key}",
            f"{after.path} has the digest {after.digest}, the run read one of {before.digest}",
            "give the file that the run read",
        )
        for before, after in changed_sources(recorded, read)
    ]


def with_files(input_tables: Tables, files: Iterable[NamedFiles], data: Sequence[str]) -> Tables:
    """The tables of an input with the paths of its `files` replaced by those in `data`. Raises NotReplayable where a
    file is missing there."""
    input_tables = copy.deepcopy(input_tables)
    for names in files:
        path = located(names, data)
        if path is None:
            raise NotReplayable(
                f"it needs {names.key} = {names.value!r}: name that file, or a folder that holds it, with --data"
            )
        *parts, key = names.key.split(".")
        functools.reduce(lambda table, part: table.setdefault(part, {}), parts, input_tables)[key] = path
    return input_tables


def located(names: NamedFiles, data: Sequence[str]) -> str | None:
    """Find the file, folder or pattern that an input names among the user's files and folders `data`; None if missing.

    The results file may come from another machine, so the end of the path decides: `/theirs/traces/cella.csv` matches
    the file `cella.csv` in `data`, and `traces/cella.csv` or `cella.csv` in a folder of `data`.
    """
    for path in _candidates(names.value, data):
        try:
            files = names.find(path)
        except InputError:
            continue
        if all(file.is_file() for file in files):
            return path
    return None


def _candidates(value: str, data: Sequence[str]) -> Iterator[str]:
    """Paths in `data` that end like the path `value` of the input."""
    parts = [part for part in PurePath(value).parts if part != PurePath(value).anchor]
    if ".." in parts:
        parts = parts[len(parts) - parts[::-1].index("..") :]
    for root in map(Path, data):
        if parts and root.name == parts[-1]:
            yield str(root)
        for start in range(len(parts) if root.is_dir() else 0):
            *folders, last = parts[start:]
            path = root.joinpath(*folders, last)
            may_match = is_pattern(last) and not any(map(is_pattern, folders)) and "**" not in last
            if path.exists() or may_match:
                yield str(path)


_RECOMPUTED = ("distance_m", "bandwidth_bps", "comm_s", "power_fraction", "throughput_fraction", "work_s")
"""The columns of the table /sites that follow from the input and the sizes of the shards."""


def _sites(run: Run, simulation: Simulation) -> Iterator[Fault]:
    computed = site_columns(simulation)
    expected = {name: computed[name][0] for name in _RECOMPUTED}
    recorded = {name: run.sites[name].to_numpy() for name in ("site", *expected) if name in run.sites}
    yield from _differences(run, "sites", recorded, expected)


def _rounds(run: Run, simulation: Simulation, history: History) -> Iterator[Fault]:
    state, expected = State(), []
    for row in history.rows:
        place = f"{run.path}: round {row.round}"
        try:
            draft = simulation.begin(state)
        except InputError as error:
            yield Fault(place, f"the policy now says: {error.faults[0]}")
            break
        again = row
        if not np.array_equal(row.cohort.site, draft.cohort):
            yield Fault(
                place,
                f"its cohort {_short(row.cohort.site)} is not the one that policy "
                f"{simulation.policy.kind!r} chooses, {_short(draft.cohort)}",
            )
        else:
            again = simulation.row(draft, Outcome.recorded(row))
            weighed = [each.candidates and each.candidates.k.tolist() for each in (row, again)]
            if weighed[0] != weighed[1]:
                yield Fault(place, "its candidates are not those that the policy weighs")
                again = replace(again, candidates=row.candidates)
        expected.append(again)
        state = State(row.round, row.clock_s, state.history.appended(row))
    histories = History(history.rows[: len(expected)]), History(tuple(expected))
    before, after = (
        {
            table: {name: column.values for name, column in names.items()}
            for table, names in tables(each).items()
        }
        for each in histories
    )
    for table in ("rounds_sites", "candidates", "rounds"):
        yield from _differences(run, table, before[table], after[table])


_PLACES = {
    "sites": {"site": "site"},
    "rounds": {"round": "round"},
    "rounds_sites": {"round": "round", "site": "site"},
    "candidates": {"round": "round", "k": "candidate k ="},
}
"""{table: {column: word}} of the columns that identify a row."""


def _differences(
    run: Run, table: str, recorded: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> Iterator[Fault]:
    """One fault for every column of a table that differs from the recomputed one: the first element that does, and the
    number of the others. Columns that the file lacks are skipped."""
    for name, values in expected.items():
        if name not in recorded or name in run.tables[table].attrs["added"]:
            continue
        at = unequal(recorded[name], values)
        if len(at):
            keys = {word: recorded[key][at[0]] for key, word in _PLACES[table].items()}
            row = ", ".join(
                run.site_name(of) if word == "site" else f"{word} {of}" for word, of in keys.items()
            )
            more = f" (and {len(at) - 1} more)" if len(at) > 1 else ""
            problem = f"{name} is {recorded[name][at[0]]:g}, recomputed {values[at[0]]:g}{more}"
            yield Fault(f"{run.path}: {row}", problem)


def _short(sites: np.ndarray) -> str:
    head = ", ".join(map(str, sites[:8]))
    return f"[{head}{', ...' if len(sites) > 8 else ''}] ({len(sites)})"
