"""What is common to all results files, whatever was simulated: attributes, the input, and the schema of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import flat, without
from hpctrip.base.rows import TEXT
from hpctrip.base.sources import PLUGINS
from hpctrip.base.text import printable
from hpctrip.record.frames import plain, text
from hpctrip.record.schema import Attribute
from hpctrip.record.stored_input import resolved_input

MOST_SHOWN = 10_000
"""Characters of one text: nobody reads on, and no picture has room."""


@dataclass(frozen=True, eq=False)
class ResultsFile:
    """One results file in memory.

    Every frame has `attrs`: "units" and "descriptions" ({column: text}) and "checksum" as stored in the file, "added":
    the columns that came after the hpctrip that wrote it, which hold their default. Any other column that the file
    lacks is missing here too, and `schema_faults` names it.
    """

    path: Path
    format_version: int
    meta: dict[str, Any]
    """The file's attributes (`attributes`)."""
    added: tuple[str, ...]
    """The attributes that came after the hpctrip that wrote the file: `meta` holds their default."""
    checksum: str
    """Of `meta` and the input, as stored in the file."""
    input_toml: str
    """The merged input, as the user could have written it in one file."""
    input: dict[str, Any]
    """The resolved input, defaults included."""

    attributes: ClassVar[Mapping[str, Attribute]]
    columns: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]]
    """{table: {column: {doc, unit, dtype}}}."""

    @property
    def status(self) -> str:
        """running, finished, failed or interrupted; empty where the file does not say, escaped where it says else."""
        return printable(self.meta.get("status", ""), 40)

    def legible(self) -> Self:
        """The same for whoever shows it: all texts of the attributes and the input are escaped."""
        return replace(self, meta=_legible(self.meta), input=_legible(self.input))

    def setting(self, key: str, default: Any = None) -> Any:
        """The value of a dotted input key; the default where the input has no such key, or a table in its place."""
        return flat(self.input).get(key, default)

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved input as {dotted key: value}, without the keys that change no result."""
        # plug-ins are compared by content; files from before that list their paths among the keys that count
        return without(flat(self.input), [*self.meta["neutral_keys"], PLUGINS])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        raise NotImplementedError

    def schema_faults(self) -> list[Fault]:
        """Attributes that are missing; columns that are missing or have another type or unit than `columns` says."""
        absent = [name for name in self.attributes if name not in self.meta]
        faults = [Fault(f"{self.path}: attribute {name}", "is missing") for name in absent]
        for table, names in self.columns.items():
            frame = self.tables[table]
            for name, about in names.items():
                place = f"{self.path}: /{table}/{name}"
                if name not in frame:
                    faults.append(Fault(place, "is missing", "restore a copy or run again"))
                elif not _has_type(frame[name], about["dtype"]):
                    faults.append(Fault(place, f"has type {frame[name].dtype}, not {_type(about['dtype'])}"))
                elif (unit := frame.attrs["units"][name]) != about["unit"]:
                    faults.append(Fault(place, f"has the unit {unit!r}, not {about['unit']!r}"))
        return faults


def _legible(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value, MOST_SHOWN)
    if isinstance(value, dict):
        return {_legible(key): _legible(part) for key, part in value.items()}
    return [_legible(part) for part in value] if isinstance(value, list) else value


def _type(dtype: str) -> np.dtype | str:
    return dtype if dtype == TEXT else np.dtype(dtype)


def _has_type(values: pd.Series, dtype: str) -> bool:
    return not is_numeric_dtype(values) if dtype == TEXT else values.dtype == _type(dtype)


def common(path: Path, file: h5py.File, attributes: Mapping[str, Attribute], version: int) -> dict[str, Any]:
    """The fields of a `ResultsFile` that are read from an open file, which must have this format version."""
    meta = {name: plain(value) for name, value in file.attrs.items()}
    del meta["format"]
    _check_version(path, meta.pop("format_version"), version, meta.get("hpctrip_version"))
    checksum = meta.pop("checksum", "")
    for name in attributes.keys() & meta.keys():
        if type(meta[name]) is not type(attributes[name].default):
            raise ValueError(f"attribute {name} is {meta[name]!r}")
    added = {
        name: attribute.default
        for name, attribute in attributes.items()
        if attribute.is_later and name not in meta
    }
    return {
        "path": path,
        "format_version": version,
        "meta": meta | added,
        "added": tuple(added),
        "checksum": checksum,
        "input_toml": text(file["input/toml"]),
        "input": resolved_input(text(file["input/json"])),
    }


def _check_version(path: Path, stored: Any, version: int, writer: Any) -> None:
    """Raise InputError where the file has another format version than the one that is read."""
    if stored != version:
        problem = f"has format version {stored!r}, written by hpctrip {writer or 'of unknown version'}"
        raise InputError(
            str(path), f"{problem}; this hpctrip reads version {version}", "use the hpctrip that wrote it"
        )
