"""Base class of all results files, and the registry of their kinds."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import h5py
import numpy as np

from hpctrip.base.errors import Fault
from hpctrip.base.frames import pd
from hpctrip.base.rows import TEXT
from hpctrip.base.text import printable
from hpctrip.config.identity import flat, without
from hpctrip.config.sources import PLUGINS
from hpctrip.record.open_checked import open_checked
from hpctrip.record.schema import Attribute


class Kind(NamedTuple):
    """The functions that read and use results files of one format."""

    read: Callable[[Path, h5py.File, bool], Any]
    """Read the results from an open file: the whole of them, or what `facts` needs."""
    facts: Callable[[Any], dict[str, Any]]
    """The results as {name: value}, with units in the names."""
    summary: Callable[[Mapping[str, Any]], dict[str, str]]
    """The facts in words, {label: text}."""
    contradictions: Callable[[Any], Iterator[Fault]]
    """The faults of numbers that contradict one another."""
    differences: Callable[[Any, Any], Iterator[Any]]
    """The `Difference`s between the tables of two files."""
    replay: str
    """The function that recomputes the simulated numbers, as "module:name", because its module is in a higher layer."""


KINDS = {"hpctrip run": "hpctrip.record.run_kind:KIND", "hpctrip cluster": "hpctrip.cluster.results:KIND"}
"""{format: "module:name" of its Kind}, imported when a file of this format is used."""


@dataclass(frozen=True, eq=False)
class ResultsFile:
    """A results file in memory.

    Every frame has `attrs`: "units" and "descriptions" ({column: text}), and "added", the columns that are newer than
    the file and hold their default. Other columns that the file lacks are faults (`schema_faults`).
    """

    path: Path
    meta: dict[str, Any]
    """The file's attributes (`attributes`)."""
    added: tuple[str, ...]
    """The attributes that are newer than the file: `meta` holds their default."""
    input_toml: str
    """The merged input as TOML; a file with this text repeats the run."""
    input: dict[str, Any]
    """The resolved input, defaults included."""

    format: ClassVar[str]
    attributes: ClassVar[Mapping[str, Attribute]]
    columns: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]]
    """{table: {column: {doc, unit, dtype}}}."""

    @property
    def kind(self) -> Kind:
        """The functions for files of this format."""
        return pkgutil.resolve_name(KINDS[self.format])

    @property
    def counted(self) -> str:
        """The size of the results in a few words."""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """ "running", "finished", "failed" or "interrupted", as recorded (escaped); empty where it is not recorded."""
        return printable(self.meta.get("status", ""), 40)

    def setting(self, key: str, default: Any = None) -> Any:
        """The value of a dotted input key; `default` where the input has no such key, or a table there."""
        return flat(self.input).get(key, default)

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved input as {dotted key: value}, without the keys that change no result."""
        # plug-ins are compared by content; older files do not list their paths among the neutral keys
        return without(flat(self.input), [*self.meta["neutral_keys"], PLUGINS])

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames by the name of their group in the file."""
        raise NotImplementedError

    def schema_faults(self) -> list[Fault]:
        """Faults for missing attributes, and for columns that are missing or have another type or unit than in
        `columns`."""
        absent = [name for name in self.attributes if name not in self.meta]
        faults = [Fault(f"{self.path}: attribute {name}", "is missing") for name in absent]
        for table, names in self.columns.items():
            frame = self.tables[table]
            for name, spec in names.items():
                place = f"{self.path}: /{table}/{name}"
                if name not in frame:
                    faults.append(Fault(place, "is missing", "restore a copy or run again"))
                elif not _has_type(frame[name], spec["dtype"]):
                    faults.append(Fault(place, f"has type {frame[name].dtype}, not {_type(spec['dtype'])}"))
                elif (unit := frame.attrs["units"][name]) != spec["unit"]:
                    faults.append(Fault(place, f"has the unit {unit!r}, not {spec['unit']!r}"))
        return faults


def open_results(path: str | Path, whole: bool = True) -> Any:
    """Read a results file of any kind: the whole of it, or what its facts need. Raises InputError, in one line that
    names the file, for any fault in what is read."""
    with open_checked(path, *KINDS) as file:
        return read_results(Path(path), file, whole)


def read_results(path: Path, file: h5py.File, whole: bool) -> Any:
    """Read the results from an open file of any kind, as `open_results`."""
    kind: Kind = pkgutil.resolve_name(KINDS[file.attrs["format"].decode()])
    return kind.read(path, file, whole)


def _type(dtype: str) -> np.dtype | str:
    return dtype if dtype == TEXT else np.dtype(dtype)


def _has_type(values: pd.Series, dtype: str) -> bool:
    return not pd.api.types.is_numeric_dtype(values) if dtype == TEXT else values.dtype == _type(dtype)
