"""Reads results files into tidy pandas frames. Nothing in a file is ever unpickled or executed."""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np
import pandas as pd

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import named_path
from hpctrip.base.text import printable
from hpctrip.record import schema
from hpctrip.record.admission import admitted, damaged
from hpctrip.record.frames import frame
from hpctrip.record.older import in_force, modernised
from hpctrip.record.results_file import ResultsFile, common
from hpctrip.sim.rounds import History

R = TypeVar("R", bound=ResultsFile)

SUFFIXES = (".h5", ".hdf5")
"""What counts as a results file when a folder is given."""
FAULTS_TOLD = 10
"""Of the faults of a file's structure, of which there may be millions, one report names so many."""


@dataclass(frozen=True, eq=False)
class Run(ResultsFile):
    """The results of a federated run."""

    sites: pd.DataFrame
    """[N] one row a site."""
    rounds: pd.DataFrame
    """[R] one row a round."""
    cohorts: pd.DataFrame
    """One row a (round, site of its cohort): /rounds_sites."""
    candidates: pd.DataFrame
    """One row a (round, cohort size k weighed)."""

    attributes = schema.ATTRIBUTES
    columns = schema.TABLES

    @property
    def time_to_accuracy_s(self) -> float:
        """Simulated time when the target accuracy was first reached, in seconds; NaN if it was not."""
        return float(self.meta.get("time_to_accuracy_s", "nan"))

    def time_to(self, accuracy: float) -> float:
        """Simulated time when this accuracy was first reached, in seconds; NaN if it was not."""
        return schema.time_to_accuracy_s(
            zip(self.rounds["clock_s"], self.rounds["accuracy"], strict=True), accuracy
        )

    def spent(self, accuracy: float) -> tuple[float, bool]:
        """Simulated seconds until this accuracy was first reached, and True; in all and False where it was not."""
        reached_s = self.time_to(accuracy)
        reached = math.isfinite(reached_s)
        return (reached_s if reached else float(self.rounds["clock_s"].iloc[-1])), reached

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved input as {dotted key: value}, without the keys that change no result."""
        return in_force(super().settings)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        return {
            "sites": self.sites,
            "rounds": self.rounds,
            "rounds_sites": self.cohorts,
            "candidates": self.candidates,
        }

    @property
    def counted(self) -> str:
        """How much there is, in a few words."""
        return f"{len(self.rounds)} rounds, model digest {printable(self.meta['params_digest'], 100)}"

    def schema_faults(self) -> list[Fault]:
        """Those of every results file, and sites that are not numbered."""
        faults = super().schema_faults()
        if "site" not in self.sites:
            faults.append(Fault(f"{self.path}: /sites/site", "is missing"))
        return faults

    def structure_faults(self) -> Iterator[Fault]:
        """What is wrong with the keys that join the tables of a file without `schema_faults`: rounds count from 1, rows
        refer to rounds and sites that exist, in order."""
        num_rounds, num_sites = len(self.rounds), len(self.sites)
        if not np.array_equal(self.rounds["round"], np.arange(1, num_rounds + 1)):
            yield Fault(f"{self.path}: /rounds/round", f"does not count from 1 to {num_rounds}")
        if not np.array_equal(self.sites["site"], np.arange(num_sites)):
            yield Fault(f"{self.path}: /sites/site", f"does not count from 0 to {num_sites - 1}")
        for name in ("rounds_sites", "candidates"):
            rounds = self.tables[name]["round"]
            if not rounds.is_monotonic_increasing or not rounds.between(1, num_rounds).all():
                yield Fault(f"{self.path}: /{name}/round", f"does not rise within 1 to {num_rounds}")
        outside = self.cohorts[~self.cohorts["site"].between(0, num_sites - 1)]
        for number, site in zip(outside["round"], outside["site"], strict=True):
            problem = f"its cohort has site {site}; sites are 0 to {num_sites - 1}"
            yield Fault(f"{self.path}: round {number}", problem)

    def history(self) -> History:
        """The rows as the run recorded them, exactly. Raises InputError where columns are missing, or rows refer to
        rounds or sites that there are not."""
        if faults := self.schema_faults() or [*islice(self.structure_faults(), FAULTS_TOLD)]:
            raise InputError(faults=faults)
        try:
            return schema.history_of(
                {name: {c: frame[c].to_numpy() for c in frame} for name, frame in self.tables.items()}
            )
        except ValueError as error:
            raise damaged(self.path, error) from error


def open_run(path: str | Path) -> Run:
    """Read one results file. Raises InputError, in one line that names the file, for whatever is wrong with it: it is
    damaged, larger than the bounds in `record.admission`, or holds what hpctrip does not write."""
    path = Path(path)
    with admitted(path, schema.FORMAT) as file:
        return _read(path, file)


def _read(path: Path, file: h5py.File) -> Run:
    fields = common(path, file, schema.ATTRIBUTES, schema.FORMAT_VERSION)
    frames = {}
    for name in ("sites", *schema.TABLES):
        made = frame(file[name], schema.TABLES.get(name, {}))
        frames[name] = modernised(name, made, fields["input"]) if fields["format_version"] == 1 else made
    return Run(
        **fields,
        sites=frames["sites"],
        rounds=frames["rounds"],
        cohorts=frames["rounds_sites"],
        candidates=frames["candidates"],
    )


def open_runs(
    patterns: Iterable[str | Path], besides: str | Path = "", opened: Callable[[Path], R] = open_run
) -> list[R]:
    """Read every results file that files, folders (searched to any depth) and glob patterns name, each once; `besides`
    is passed over where a folder or pattern happens to hold it. `opened` reads one file.

    Raises one InputError with everything that is wrong: a pattern that names nothing, a file that cannot be read.
    """
    paths: dict[Path, None] = {}
    faults: list[Fault] = []
    for pattern in map(str, patterns):
        try:
            found = [path for path in _expand(pattern) if path.absolute() != Path(besides).absolute()]
        except InputError as error:
            faults += error.faults
            continue
        paths |= dict.fromkeys(found)
        if not found:
            faults.append(_none_there(pattern))
    if not paths and not faults:
        faults.append(Fault("results", "no file was named", "give files, folders or patterns"))
    runs = []
    for path in paths:
        try:
            runs.append(opened(path))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults=faults)
    return runs


def _none_there(pattern: str) -> Fault:
    """Of a pattern that names no results file."""
    if Path(pattern).exists() or glob.has_magic(pattern):
        suffixes = " or ".join(SUFFIXES)
        return Fault(pattern, "names no results file", f"a folder must hold files ending in {suffixes}")
    return Fault(pattern, "no such file", "give the path of a results file, a folder of them or a pattern")


def _expand(pattern: str) -> list[Path]:
    path = named_path(pattern, printable(pattern))
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
    if path.exists():
        return [path]
    return [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
