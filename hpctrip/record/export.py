"""Writes the tables of a results file as CSV files, some rows at a time, so that memory does not grow with the rows, or
as Parquet, one table at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpctrip.base.errors import require
from hpctrip.base.frames import pd
from hpctrip.base.io import json_text, write_new
from hpctrip.record import schema
from hpctrip.record.formats import csv_bytes
from hpctrip.record.open_checked import open_checked
from hpctrip.record.reader import defaults, read_frame, stored_columns
from hpctrip.record.results_file import FORMATS, read_results

ROWS = 2**12
"""Rows that are in memory at once."""


def export(
    path: str | Path, folder: str | Path, overwrite: bool = False, parquet: bool = False
) -> list[Path]:
    """Write one CSV or, if `parquet`, one Parquet file per table, columns.csv with the unit and description of every
    column, and meta.json with the attributes and the resolved input; returns the paths.

    Each file is written atomically. CSV is that of `csv_bytes`; JSON has null for numbers that are not finite. pandas
    finds the units of Parquet in the `attrs` of the frame. Raises InputError where the file is damaged, before anything
    is written, where a file exists and `overwrite` is false, and where Parquet needs a package.
    """
    if parquet:
        require("--parquet", "parquet", "pyarrow")
    with open_checked(path, *FORMATS) as file:
        results = read_results(Path(path), file, whole=False)
        for name in results.tables:
            if schema.table_checksum(stored_columns(file[name])) != file[name].attrs["checksum"].decode():
                raise ValueError(f"/{name} does not match its checksum")
        expected = {name: results.format.tables.get(name, {}) for name in results.tables}
        suffix, write = ("parquet", _parquet) if parquet else ("csv", _csv)
        contents: dict[Path, bytes | Iterator[bytes]] = {
            Path(folder, f"{name}.{suffix}"): write(file[name], about) for name, about in expected.items()
        }
        contents[Path(folder, "columns.csv")] = _columns(file, expected)
        meta = json_text({"meta": results.meta, "input": results.input})
        return write_new(contents | {Path(folder, "meta.json"): meta.encode() + b"\n"}, overwrite)


def _columns(file: h5py.File, expected: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bytes:
    """The table, name, unit and description of every column as CSV."""
    rows = []
    for table, about in expected.items():
        group = file[table]
        rows += [
            (table, name, *(group[name].attrs[key].decode() for key in ("unit", "description")))
            for name in group
            if name != schema.ROW
        ]
        rows += [(table, name, about[name]["unit"], about[name]["doc"]) for name in defaults(group, about)]
    return csv_bytes(pd.DataFrame(rows, columns=["table", "column", "unit", "description"]))


def _parquet(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> Iterator[bytes]:
    """A table as Parquet, in one piece."""
    yield read_frame(group, expected).to_parquet(index=False)


def _csv(group: h5py.Group, expected: Mapping[str, Mapping[str, Any]]) -> Iterator[bytes]:
    """A table as CSV in pieces, with the defaults of columns that are newer than the file."""
    later = defaults(group, expected)
    num_rows = len(group[next(iter(group))])
    for start in range(0, num_rows, ROWS) or [0]:
        rows = slice(start, min(start + ROWS, num_rows))
        columns = {
            name: (group[name].asstr() if group[name].dtype.kind == "S" else group[name])[rows]
            for name in group
            if name != schema.ROW
        }
        added = {name: np.full(rows.stop - start, value) for name, value in later.items()}
        yield csv_bytes(columns | added, with_header=start == 0)
