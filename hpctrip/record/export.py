"""Writes the tables of a results file as CSV files, some rows at a time, so that memory does not grow with the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpctrip.base.io import json_text, write_new
from hpctrip.record import schema
from hpctrip.record.merge import csv_bytes
from hpctrip.record.open_checked import open_checked
from hpctrip.record.reader import defaults, stored_columns
from hpctrip.record.results_file import FORMATS, read_results

ROWS = 2**12
"""Rows that are in memory at once."""


def export(path: str | Path, folder: str | Path, overwrite: bool = False) -> list[Path]:
    """Write one CSV per table, and meta.json with the attributes and the resolved input; returns the paths.

    Each file is written atomically. The bytes are those of `csv_bytes`; JSON has null for numbers that are not finite.
    Raises InputError where the file is damaged, before anything is written, and where a file exists and `overwrite` is
    false.
    """
    with open_checked(path, *FORMATS) as file:
        results = read_results(Path(path), file, whole=False)
        for name in results.tables:
            if schema.table_checksum(stored_columns(file[name])) != file[name].attrs["checksum"].decode():
                raise ValueError(f"/{name} does not match its checksum")
        contents: dict[Path, bytes | Iterator[bytes]] = {
            Path(folder, f"{name}.csv"): _csv(file[name], results.format.tables.get(name, {}))
            for name in results.tables
        }
        meta = json_text({"meta": results.meta, "input": results.input})
        return write_new(contents | {Path(folder, "meta.json"): meta.encode() + b"\n"}, overwrite)


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
