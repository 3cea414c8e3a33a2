"""Reads results files into tidy pandas frames. Nothing in a file is ever unpickled or executed."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.files import named_path
from hpctrip.base.identity import flat, without
from hpctrip.base.sources import PLUGINS
from hpctrip.base.text import printable
from hpctrip.record import schema
from hpctrip.record.admission import admitted, damaged
from hpctrip.record.older import in_force, modernised
from hpctrip.record.stored_input import resolved_input
from hpctrip.sim.rounds import History

SUFFIXES = (".h5", ".hdf5")
"""What counts as a results file when a folder is given."""


@dataclass(frozen=True, eq=False)
class Run:
    """One results file in memory.

    Every frame has `attrs`: "units" and "descriptions" ({column: text}) and "checksum" as stored in the file, "added":
    the columns that came after the hpctrip that wrote it, which hold their default, and "stored": {column: its name in
    the file} where that was another. Any other column that the file lacks is missing here too, and `schema_faults`
    names it.
    """

    path: Path
    format_version: int
    meta: dict[str, Any]
    """The file's attributes (`schema.ATTRIBUTES`)."""
    added: tuple[str, ...]
    """The attributes that came after the hpctrip that wrote the file: `meta` holds their default."""
    checksum: str
    """Of `meta` and the input, as stored in the file."""
    input_toml: str
    """The merged input, as the user could have written it in one file."""
    input: dict[str, Any]
    """The resolved input, defaults included."""
    sites: pd.DataFrame
    """[N] one row a site."""
    rounds: pd.DataFrame
    """[R] one row a round."""
    cohorts: pd.DataFrame
    """One row a (round, site of its cohort): /rounds_sites."""
    candidates: pd.DataFrame
    """One row a (round, cohort size k weighed)."""

    @property
    def time_to_accuracy_s(self) -> float:
        """Simulated time when the target accuracy was first reached, in seconds; NaN if it was not."""
        return float(self.meta.get("time_to_accuracy_s", "nan"))

    def time_to(self, accuracy: float) -> float:
        """Simulated time when this accuracy was first reached, in seconds; NaN if it was not."""
        return schema.time_to_accuracy_s(
            zip(self.rounds["clock_s"], self.rounds["accuracy"], strict=True), accuracy
        )

    @property
    def status(self) -> str:
        """running, finished, failed or interrupted; empty where the file does not say."""
        return self.meta.get("status", "")

    def setting(self, key: str, default: Any = None) -> Any:
        """The value of a dotted input key; the default where the input has no such key, or a table in its place."""
        return flat(self.input).get(key, default)

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved input as {dotted key: value}, without the keys that change no result."""
        # plug-ins are compared by content; files from before that list their paths among the keys that count
        return without(in_force(flat(self.input)), [*self.meta["neutral_keys"], PLUGINS])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        return {
            "sites": self.sites,
            "rounds": self.rounds,
            "rounds_sites": self.cohorts,
            "candidates": self.candidates,
        }

    def schema_faults(self) -> list[Fault]:
        """Attributes that are missing; columns that are missing or have another type or unit than `schema.TABLES`
        says."""
        absent = [name for name in schema.ATTRIBUTES if name not in self.meta]
        faults = [Fault(f"{self.path}: attribute {name}", "is missing") for name in absent]
        if "site" not in self.sites:
            faults.append(Fault(f"{self.path}: /sites/site", "is missing"))
        for table, names in schema.TABLES.items():
            frame = self.tables[table]
            for name, about in names.items():
                place, dtype = f"{self.path}: /{table}/{name}", np.dtype(about["dtype"])
                if name not in frame:
                    faults.append(Fault(place, "is missing", "restore a copy or run again"))
                elif frame[name].dtype != dtype:
                    faults.append(Fault(place, f"has type {frame[name].dtype}, not {dtype}"))
                elif (unit := frame.attrs["units"][name]) != about["unit"]:
                    faults.append(Fault(place, f"has the unit {unit!r}, not {about['unit']!r}"))
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
        """The rows as the run recorded them, exactly. Raises InputError where columns are missing or disordered."""
        if faults := self.schema_faults():
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
    meta = {name: _plain(value) for name, value in file.attrs.items()}
    del meta["format"]
    version = _version(path, meta.pop("format_version"))
    checksum = meta.pop("checksum", "")
    for name in schema.ATTRIBUTES.keys() & meta.keys():
        if type(meta[name]) is not type(schema.ATTRIBUTES[name].default):
            raise ValueError(f"attribute {name} is {meta[name]!r}")
    added = {
        name: attribute.default
        for name, attribute in schema.ATTRIBUTES.items()
        if attribute.is_later and name not in meta
    }
    resolved = resolved_input(_text(file["input/json"]))
    frames = {}
    for name in ("sites", *schema.TABLES):
        frame = _frame(file[name], schema.TABLES.get(name, {}))
        frames[name] = modernised(name, frame, resolved) if version == 1 else frame
    return Run(
        path=path,
        format_version=version,
        meta=meta | added,
        added=tuple(added),
        checksum=checksum,
        input_toml=_text(file["input/toml"]),
        input=resolved,
        sites=frames["sites"],
        rounds=frames["rounds"],
        cohorts=frames["rounds_sites"],
        candidates=frames["candidates"],
    )


def _version(path: Path, found: Any) -> int:
    if type(found) is not int or not 1 <= found <= schema.FORMAT_VERSION:
        raise InputError(
            str(path),
            f"has format version {printable(repr(found), 40)}; this hpctrip reads 1 to {schema.FORMAT_VERSION}",
            "use a newer one",
        )
    return found


def _plain(value: Any) -> Any:
    """The value of an attribute: str, int, float, bool or list of str."""
    if isinstance(value, np.ndarray):
        return [text.decode() for text in value.tolist()]
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


def _text(dataset: h5py.Dataset) -> str:
    if dataset.ndim:
        raise ValueError(f"{dataset.name} is no text")
    return dataset.asstr()[()]


def _values(dataset: h5py.Dataset) -> np.ndarray:
    """The values [rows] of a column: numbers in native order, or texts as objects."""
    if dataset.ndim != 1:
        raise ValueError(f"{dataset.name} is no column")
    if dataset.dtype.kind == "S":
        return dataset.asstr()[()]
    values = dataset[()]
    return values.astype(values.dtype.newbyteorder("="))


def _frame(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    columns = {name: group[name] for name in group}  # not items(), which gives None for what cannot be read
    frame = pd.DataFrame({name: _values(dataset) for name, dataset in columns.items()})
    for key, attribute in (("units", "unit"), ("descriptions", "description")):
        frame.attrs[key] = {name: _plain(dataset.attrs[attribute]) for name, dataset in columns.items()}
    frame.attrs["checksum"] = _plain(group.attrs["checksum"])
    added = {name: about for name, about in expected.items() if name not in columns and "default" in about}
    for name, about in added.items():
        frame[name] = np.full(len(frame), about["default"], dtype=about["dtype"])
        frame.attrs["units"][name], frame.attrs["descriptions"][name] = about["unit"], about["doc"]
    frame.attrs["added"], frame.attrs["stored"] = list(added), {}
    return frame


def open_runs(patterns: Iterable[str | Path], besides: str | Path = "") -> list[Run]:
    """Read every results file that files, folders (searched to any depth) and glob patterns name, each once; `besides`
    is passed over where a folder or pattern happens to hold it.

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
            suffixes = " or ".join(SUFFIXES)
            faults.append(
                Fault(pattern, "names no results file", f"a folder must hold files ending in {suffixes}")
            )
    if not paths and not faults:
        faults.append(Fault("results", "no file was named", "give files, folders or patterns"))
    runs = []
    for path in paths:
        try:
            runs.append(open_run(path))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults=faults)
    return runs


def _expand(pattern: str) -> list[Path]:
    path = named_path(pattern, printable(pattern))
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
    if path.exists():
        return [path]
    return [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
