"""Reads results files into tidy pandas frames. Nothing in a file is ever unpickled or executed."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import flat, without
from hpctrip.record import schema
from hpctrip.record.older import in_force, modernised
from hpctrip.sim.rounds import History
from hpctrip.sim.trace_file import Flags
from hpctrip.sim.traces import read_trace_files

SUFFIXES = (".h5", ".hdf5")
"""What counts as a results file when a folder is given."""

_EXPANSION = 1032
"""The most that deflate can expand. A damaged size may claim terabytes; no stored data could fill them."""


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
    def settings(self) -> dict[str, Any]:
        """The resolved input as {dotted key: value}, without the keys that change no result."""
        return without(in_force(flat(self.input)), self.meta["neutral_keys"])

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
        """Columns that are missing or have another type or unit than `schema.TABLES` says."""
        faults = [] if "site" in self.sites else [Fault(f"{self.path}: /sites/site", "is missing")]
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

    def history(self) -> History:
        """The rows as the run recorded them, exactly. Raises InputError where columns are missing or disordered."""
        if faults := self.schema_faults():
            raise InputError(faults=faults)
        try:
            return schema.history_of(
                {name: {c: frame[c].to_numpy() for c in frame} for name, frame in self.tables.items()}
            )
        except ValueError as error:
            raise _damaged(self.path, error) from error


def open_run(path: str | Path) -> Run:
    """Read one results file. Raises InputError, in one line that names the file, for whatever is wrong with it."""
    path = Path(path)
    try:
        path.open("rb").close()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}", "check the path") from error
    if not h5py.is_hdf5(path):
        raise InputError(str(path), "is not an HDF5 file", "give a results file that `hpctrip run` wrote")
    try:
        with h5py.File(path, "r") as file:
            _check_format(path, file)
            return _read(path, file)
    except InputError:
        raise
    except BlockingIOError as error:
        raise InputError(
            str(path),
            "is locked by another program",
            "set HDF5_USE_FILE_LOCKING=FALSE: results files are replaced whole, so reading one needs no lock",
        ) from error
    # on a damaged file h5py raises nearly anything: OSError, KeyError, MemoryError...
    except Exception as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputError:
    cause = " ".join(str(error).split()) or type(error).__name__
    return InputError(str(path), f"is damaged ({cause})", "restore a copy or run again")


def _check_format(path: Path, file: h5py.File) -> None:
    if "format" not in file.attrs or _plain(file.attrs["format"]) != schema.FORMAT:
        raise InputError(str(path), "is not an hpctrip results file", "give a file that `hpctrip run` wrote")
    version = int(file.attrs["format_version"])
    if version > schema.FORMAT_VERSION:
        raise InputError(
            str(path),
            f"has format version {version}; this hpctrip reads up to {schema.FORMAT_VERSION}",
            "use a newer one",
        )


def _read(path: Path, file: h5py.File) -> Run:
    meta = {name: _plain(value) for name, value in file.attrs.items()}
    for name in ("format", "format_version"):
        del meta[name]
    checksum = meta.pop("checksum", "")
    for name in schema.ATTRIBUTES.keys() & meta.keys():
        if type(meta[name]) is not type(schema.ATTRIBUTES[name].default):
            raise ValueError(f"attribute {name} is {meta[name]!r}")
    added = {
        name: attribute.default
        for name, attribute in schema.ATTRIBUTES.items()
        if attribute.is_later and name not in meta
    }
    resolved, version = json.loads(_text(file["input/json"])), int(file.attrs["format_version"])
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


def _plain(value: Any) -> Any:
    """The value of an attribute: str, int, float, bool or list of str."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "S":
        return [text.decode() for text in value.tolist()]
    value = value.item() if isinstance(value, np.generic) else value
    return value.decode() if isinstance(value, bytes) else value


def _text(dataset: h5py.Dataset) -> str:
    return dataset.asstr()[()]


def _values(dataset: h5py.Dataset) -> np.ndarray:
    """The values [rows] of a column: numbers in native order, or texts as objects."""
    if dataset.ndim != 1 or dataset.nbytes > _EXPANSION * max(dataset.id.get_storage_size(), 1):
        raise ValueError(f"{dataset.name} has the impossible shape {dataset.shape}")
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
        found = [path for path in _expand(pattern) if path.absolute() != Path(besides).absolute()]
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
    path = Path(pattern)
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
    if path.exists():
        return [path]
    return [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]


def read_traces(path: str | Path, column: str = "production", flags: Flags = "true-is-bad") -> pd.DataFrame:
    """Power utilisation of every domain in trace files, in long form: time_s, cell, domain, utilisation.

    `time_s` counts from the first sample and is the start of the interval that the value holds for.
    `attrs["synthetic"]` says whether any of it was made up. Arguments and errors as in `read_trace_files`.
    """
    traces = read_trace_files(path, column, flags)
    num_domains, num_steps = traces.util.shape
    frame = pd.DataFrame(
        {
            "time_s": np.tile(np.arange(num_steps) * traces.step_s, num_domains),
            "cell": np.repeat(traces.cells, num_steps),
            "domain": np.repeat(traces.names, num_steps),
            "utilisation": traces.util.ravel(),
        }
    )
    frame.attrs["units"] = {"time_s": "s", "cell": "1", "domain": "1", "utilisation": "1"}
    frame.attrs["synthetic"] = traces.synthetic
    return frame
