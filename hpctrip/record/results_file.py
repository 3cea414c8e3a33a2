"""Base class of all results files, and the list of their formats."""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import h5py
import numpy as np

from hpctrip.base.errors import Fault
from hpctrip.base.frames import pd
from hpctrip.base.rows import TEXT
from hpctrip.base.text import printable
from hpctrip.config.identity import flat, without
from hpctrip.config.sources import PLUGINS
from hpctrip.record.open_checked import open_checked
from hpctrip.record.schema import Format

FORMATS = {
    "hpctrip run": "hpctrip.record.reader:Run",
    "hpctrip cluster": "hpctrip.cluster.results:ClusterRun",
}
"""{format: "module:name" of the class of its files}, imported when a file of this format is opened."""


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

    format: ClassVar[Format]
    replayed_by: ClassVar[str]
    """The function that recomputes the simulated numbers, "module:name", because its module is in a higher layer."""

    @classmethod
    def read(cls, path: Path, file: h5py.File, whole: bool = True) -> Self:
        """Read the results from an open file: the whole of them, or what their facts need."""
        raise NotImplementedError

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read a results file of this format. Raises InputError, in one line that names the file, for any fault;
        DamagedError where it is corrupted or does not match its checksums."""
        with open_checked(path, cls.format.name) as file:
            return cls.read(Path(path), file)

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
        the format."""
        absent = [name for name in self.format.attributes if name not in self.meta]
        faults = [Fault(f"{self.path}: attribute {name}", "is missing") for name in absent]
        for table, names in self.format.tables.items():
            frame = self.tables[table]
            for name, spec in names.items():
                place = f"{self.path}: /{table}/{name}"
                if name not in frame:
                    faults.append(Fault(place, "is missing", "restore a copy or run again"))
                elif not _has_type(frame[name], spec["dtype"]):
                    expected = TEXT if spec["dtype"] == TEXT else np.dtype(spec["dtype"])
                    faults.append(Fault(place, f"has type {frame[name].dtype}, not {expected}"))
                elif (unit := frame.attrs["units"][name]) != spec["unit"]:
                    faults.append(Fault(place, f"has the unit {unit!r}, not {spec['unit']!r}"))
        return faults


def open_results(path: str | Path, whole: bool = True) -> Any:
    """Read a results file of any kind: the whole of it, or what its facts need. Raises InputError, in one line that
    names the file, for any fault in what is read."""
    with open_checked(path, *FORMATS) as file:
        return read_results(Path(path), file, whole)


def read_results(path: Path, file: h5py.File, whole: bool) -> Any:
    """Read the results from an open file of any kind, as `open_results`."""
    return pkgutil.resolve_name(FORMATS[file.attrs["format"].decode()]).read(path, file, whole)


def _has_type(values: pd.Series, dtype: str) -> bool:
    """Whether a column has this type of the schema."""
    return not pd.api.types.is_numeric_dtype(values) if dtype == TEXT else values.dtype == dtype
