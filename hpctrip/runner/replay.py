"""Verifies results files: checks one against itself, then replays its simulated half: world, views, cohorts, arrivals
and the clock.

Nothing is trained. What training contributed (accuracies, measured wall times) is taken from the record;
everything that follows from the input and the history is computed anew, by the code that the run itself used.
"""

from __future__ import annotations

import copy
import functools
import glob
import itertools
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.rows import columns
from hpctrip.base.text import printable
from hpctrip.config.inputs import Tables
from hpctrip.config.plugins import Extensions, Plugin, installed
from hpctrip.config.sources import NamedFiles, Source, differing, is_pattern, read_sources
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile, open_results
from hpctrip.record.verify import MOST_FAULTS, RELATIVE_TOLERANCE, verify
from hpctrip.runner.experiment import experiment_of
from hpctrip.runner.provenance import plugin_mismatch, recorded_plugins, replayed_sources, world_files
from hpctrip.sim.outcome import Outcome
from hpctrip.sim.rounds import Candidates, CohortRound, History, RoundRow
from hpctrip.sim.step import Simulation, State


class NotReplayable(Exception):
    """Why a sound file cannot be replayed here."""


@dataclass(frozen=True)
class Verification:
    """The faults of one file; as a text it is one line."""

    path: str
    faults: list[Fault]
    """At most MOST_FAULTS."""
    replayed: bool
    """Whether the simulated half was computed anew."""
    not_replayed: str = ""
    """Why not, where that was asked for and the file is sound."""

    def __str__(self) -> str:
        more = " or more" if len(self.faults) >= MOST_FAULTS else ""
        if self.faults:
            result = f"{len(self.faults):,} fault(s){more}"
        elif self.not_replayed:
            result = f"ok, but not replayed: {printable(self.not_replayed)}"
        else:
            result = "ok" if self.replayed else "ok, not replayed"
        return f"{printable(self.path)}: {result}"

    def values(self) -> dict[str, Any]:
        """{name: value} for other programs."""
        return {"ok": not self.faults, **asdict(self)}


def verify_file(file: Path, replayed: bool, plugins: Sequence[Plugin], data: Sequence[str]) -> Verification:
    """The faults of a results file. Where it is sound by itself it is `replayed`, if asked for, with the `plugins` that
    the user named and the files that it names among `data`. Raises InputError where it is no results file."""
    path = str(file)
    try:
        results = open_results(file)
        faults = verify(results)
    except DamagedError as error:
        faults = error.faults
    if faults or not replayed:
        return Verification(path, faults, replayed=False)
    try:
        again = pkgutil.resolve_name(results.kind.replay)(results, plugins, data)
    except NotReplayable as reason:
        return Verification(path, [], replayed=False, not_replayed=str(reason))
    return Verification(path, again, replayed=True)


@np.errstate(all="ignore")  # what is not finite differs, which is all that need be said of it
def replay(run: Run, plugins: Sequence[Plugin] = (), data: Sequence[str] = ()) -> list[Fault]:
    """The recorded numbers of the simulated half that its input does not lead to, at most MOST_FAULTS; empty: the run
    is confirmed.

    `plugins` are those that the user named; of these the run's own, by their digests, are run. `data` are the files and
    folders in which files that the input names may be opened (`located`): none, unless the user says so. Raises
    NotReplayable where the run needs what is not here: its plug-ins, its files, a valid input.
    """
    history = run.history()
    try:
        recorded = read_sources(run.meta["sources"], run.path)
        run_plugins(recorded, run, plugins)
        tables = with_files(run.input, world_files(experiment_of(run.input)), data)
        experiment = experiment_of(tables)
        if other := other_files(run, recorded, replayed_sources(experiment)):
            return other  # whatever else differed would follow from it
        if experiment.num_sites() != len(run.sites):  # before a world of any size is built
            raise InputError("sites", f"the input leads to {experiment.num_sites()}, not {len(run.sites)}")
        # the sizes of the shards are those of the file, so no data are needed
        sizes = run.sites.get("num_samples", pd.Series(dtype="int64")).to_numpy()
        simulation = experiment.simulation(run.meta["num_params"] or 1, sizes)
    except InputError as error:
        raise NotReplayable(str(error.faults[0])) from None
    differing = itertools.chain(_sites(run, simulation), _rounds(run, simulation, history))
    return list(itertools.islice(differing, MOST_FAULTS))


def run_plugins(recorded: Sequence[Source], run: ResultsFile, plugins: Sequence[Plugin]) -> None:
    """Run those of the user's plug-ins with which the run was made. Raises NotReplayable where they are others."""
    needed = recorded_plugins(recorded)
    digests = {source.digest for source in needed}
    # several files are verified at once, and not all are made with the same
    own = tuple(plugin for plugin in plugins if plugin.source.digest in digests)
    candidates = own or (tuple(plugins) if needed else ())
    if problem := plugin_mismatch(needed, candidates):
        raise NotReplayable(f"{problem}; name the same, e.g. --plugin PATH")
    Extensions(candidates, installed()).run()


def other_files(run: ResultsFile, recorded: Sequence[Source], read: Sequence[Source]) -> list[Fault]:
    """One fault for every file that a replay has read whose content is not the one that the run recorded."""
    return [
        Fault(
            f"{run.path}: {before.key}",
            f"{after.path} has the digest {after.digest}, the run read one of {before.digest}",
            "give the file that the run read",
        )
        for before, after in differing(recorded, read)
    ]


def with_files(tables: Tables, files: Iterable[NamedFiles], data: Sequence[str]) -> Tables:
    """The input's tables with the `files` that it names where the user has them. NotReplayable names one that is not
    there."""
    tables = copy.deepcopy(tables)
    for names in files:
        path = located(names, data)
        if path is None:
            raise NotReplayable(
                f"it needs {names.key} = {names.value!r}: name that file, or a folder that holds it, with --data"
            )
        *parts, key = names.key.split(".")
        functools.reduce(lambda table, part: table.setdefault(part, {}), parts, tables)[key] = path
    return tables


def located(names: NamedFiles, data: Sequence[str]) -> str | None:
    """The path, folder or pattern that an input names, among the files and folders `data` that the user named; None
    where it is not there.

    The file may have been made elsewhere, so its path counts by how it ends: `/theirs/traces/cella.csv` is a named file
    of that last name, or `traces/cella.csv` or `cella.csv` in a named folder.
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
    """The paths in `data` at which a value of the input may be."""
    parts = [part for part in PurePath(value).parts if part != PurePath(value).anchor]
    if ".." in parts:
        parts = parts[len(parts) - parts[::-1].index("..") :]
    for root in map(Path, data):
        if parts and root.name == parts[-1]:
            yield str(root)
        for start in range(len(parts) if root.is_dir() else 0):
            *folders, last = parts[start:]
            if is_pattern(last) and not any(map(is_pattern, folders)) and "**" not in last:
                yield str(Path(glob.escape(str(root.joinpath(*folders))), last))
            elif (path := root.joinpath(*folders, last)).exists():
                yield str(path)


def _sites(run: Run, simulation: Simulation) -> Iterator[Fault]:
    world = simulation.world
    expected = {
        "distance_m": world.distance_m,
        "bandwidth_bps": world.bandwidth_bps,
        "comm_s": world.comm_s,
        "power_fraction": world.power_fraction(0.0),
        "throughput_fraction": world.throughput_fraction(0.0),
        "work_s": world.timing.seconds_per_sample * simulation.num_visits,
    }
    for name, values in expected.items():
        if name in run.sites and name not in run.sites.attrs["added"]:
            yield from _differences(
                f"{run.path}: site", range(len(world)), name, run.sites[name].to_numpy(), values
            )


def _rounds(run: Run, simulation: Simulation, history: History) -> Iterator[Fault]:
    past = State()
    for row in history.rows:
        place = f"{run.path}: round {row.round}"
        try:
            draft = simulation.begin(past)
        except InputError as error:
            yield Fault(place, f"the policy now says: {error.faults[0]}")
            return
        if not np.array_equal(row.cohort.site, draft.cohort):
            yield Fault(
                place,
                f"its cohort {_short(row.cohort.site)} is not the one that policy "
                f"{simulation.policy.kind!r} chooses, {_short(draft.cohort)}",
            )
        else:
            yield from _row(place, row, simulation.row(draft, Outcome.recorded(row)), run)
        past = State(row.round, row.clock_s, past.history.appended(row))


def _row(place: str, found: RoundRow, expected: RoundRow, run: Run) -> Iterator[Fault]:
    """The differences between a recorded row and the one computed anew, but for columns that the file lacks."""
    sites, weighed = found.cohort.site, found.candidates
    if (weighed is None) != (expected.candidates is None) or (
        weighed is not None and not np.array_equal(weighed.k, expected.candidates.k)
    ):
        yield Fault(place, "its candidates are not those that the policy weighs")
    elif weighed is not None:
        lacking = run.candidates.attrs["added"]
        yield from _columns(
            f"{place}, candidate k =", weighed.k, Candidates, weighed, expected.candidates, lacking
        )
    added = run.cohorts.attrs["added"]
    yield from _columns(f"{place}, site", sites, CohortRound, found.cohort, expected.cohort, added)
    yield from _columns(place, [""], RoundRow, found, expected, run.rounds.attrs["added"])


def _columns(
    place: str, keys: list | np.ndarray, row_class: type, found: Any, expected: Any, but: list[str] = ()
) -> Iterator[Fault]:
    """One fault for every column of a row class that differs."""
    for name in columns(row_class):
        if name not in but:
            values = (np.atleast_1d(getattr(row, name)) for row in (found, expected))
            yield from _differences(place, keys, name, *values)


def _differences(
    place: str, keys: range | list | np.ndarray, name: str, found: np.ndarray, expected: np.ndarray
) -> Iterator[Fault]:
    """One fault for the first element that differs, with how many do."""
    same = np.isclose(found, expected, rtol=RELATIVE_TOLERANCE, atol=1e-12, equal_nan=True)
    if not same.all():
        first = int(np.flatnonzero(~same)[0])
        more = f" (and {(~same).sum() - 1} more)" if (~same).sum() > 1 else ""
        yield Fault(
            f"{place} {keys[first]}".rstrip(),
            f"{name} is {found[first]:g}, recomputed {expected[first]:g}{more}",
        )


def _short(sites: np.ndarray) -> str:
    head = ", ".join(map(str, sites[:8]))
    return f"[{head}{', ...' if len(sites) > 8 else ''}] ({len(sites)})"
