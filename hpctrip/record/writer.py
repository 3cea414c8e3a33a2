"""Writes the results file: every write is a complete snapshot in a temporary file, which is renamed.

A snapshot, as HDF5 has no journal: a process killed while it appends can leave an unreadable file. A rename is atomic,
so a reader always gets the previous snapshot or the next. The time of a snapshot grows with the rows, so the `Recorder`
limits its share of the wall time. Only rank 0 writes.

The file is built in memory (10,000 rounds of 100 sites are 70 MB before compression) and then written as bytes. Thus a
full disk raises an error outside HDF5, which could not even close the file, and equal tables give equal bytes.

The file uses the HDF5 1.10 format (2016), whose metadata have checksums, and texts of fixed length, as HDF5 stores
others in a heap without checksums: otherwise some files with one changed byte made the library crash or hang instead of
raising an error.

Other programs read the file, too: netCDF's and R's readers know no booleans and no empty lists, and Octave's reads
ASCII only, so truth is stored as int8, an empty list as an empty text, and a text as ASCII where it is. Columns have
CF's attributes `units` and `long_name`, and every table a dimension.
"""

from __future__ import annotations

import io
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5s, h5t

import hpctrip
from hpctrip.base.io import replace_file
from hpctrip.base.text import encodable
from hpctrip.record import schema
from hpctrip.record.schema import Column, Table
from hpctrip.sim.rounds import History

_FORMAT = ("v110", "v110")
_ONE = h5s.create(h5s.SCALAR)
_ATTACHED = np.dtype([("dataset", h5py.ref_dtype), ("dimension", "i4")])

COMPRESS_ABOVE_BYTES = 4096
"""Size from which columns are compressed: the chunk index of a compressed one takes 2 kB."""

WRITE_SHARE = 50
"""Pause between snapshots, as a multiple of the time of the last one: writing takes at most 1/51 = 2 % of wall time."""

SLURM = {
    "slurm_cluster": "SLURM_CLUSTER_NAME",
    "slurm_job": "SLURM_JOB_ID",
    "slurm_step": "SLURM_STEP_ID",
    "slurm_nodes": "SLURM_JOB_NODELIST",
}
"""{attribute of results files: Slurm's environment variable}, by which they are joined with the accounting of jobs."""


def write_run(path: str | Path, meta: Mapping[str, Any], sites: Table, history: History) -> None:
    """Write a complete results file; it replaces an existing one atomically.

    `meta` holds the attributes of `schema.ATTRIBUTES` and any others (str, int, float, bool or list of str), and the
    two texts `input_toml` and `input_json`. `sites` is {column: (values [N], unit, description)} and has a `site`
    column. Attributes not given get their default; `time_to_accuracy_s` follows from the rows and `target_accuracy`.
    Raises InputError where nothing can be written there and HpctripError where the disk is full; the earlier file
    is then intact.
    """
    replace_file(path, image(meta, sites, history))


def image(meta: Mapping[str, Any], sites: Table, history: History) -> bytes:
    """The bytes of the results file; the same arguments give the same bytes."""
    meta = {name: attribute.default for name, attribute in schema.RUN.attributes.items()} | dict(meta)
    meta["time_to_accuracy_s"] = schema.time_to_accuracy_s(history.curve(), meta["target_accuracy"])
    meta["target_accuracy"] = float(meta["target_accuracy"])
    texts = {"toml": meta.pop("input_toml", ""), "json": meta.pop("input_json", "{}")}
    return file_image(schema.RUN, meta, texts, {"sites": sites, **schema.tables(history)})


def file_image(
    form: schema.Format, meta: Mapping[str, Any], texts: Mapping[str, str], tables: Mapping[str, Table]
) -> bytes:
    """The bytes of a results file from its attributes, the input as `texts` (toml, json), and its tables. Raises
    TypeError where a value in `meta` has another type than its default."""
    for name, attribute in form.attributes.items():
        if type(meta[name]) is not type(attribute.default):
            raise TypeError(f"{name} is {meta[name]!r}, not a {type(attribute.default).__name__}")
    meta = {name: _stored(value) for name, value in meta.items()}
    checksum = schema.meta_checksum(meta, texts["toml"], json.loads(texts["json"]))
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver=_FORMAT) as file:
        _annotate(file, format=form.name, format_version=form.version, checksum=checksum, **meta)
        group = file.create_group("input")
        _annotate(group, description="the merged input file and what it resolved to, defaults included")
        for name, text in texts.items():
            group.create_dataset(name, data=_encoded(text), track_times=False)
        for name, table in tables.items():
            columns = {column: Column(_stored(values), *rest) for column, (values, *rest) in table.items()}
            write_table(file, name, columns, form.docs[name], form.index.get(name))
    return buffer.getvalue()


def write_table(file: h5py.File, name: str, table: Table, doc: str, index: str | None = None) -> None:
    """Write one table, a group of columns of equal length, in their order. `index` names its index column, which
    becomes an HDF5 dimension scale; without one, a column that numbers the rows is added."""
    if index is None:
        index, num_rows = schema.ROW, len(next(iter(table.values())).values)
        table = {index: Column(np.arange(num_rows), "1", "number of the row, from 0"), **table}
    group = file.create_group(name, track_order=True)
    _annotate(group, description=doc, checksum=schema.table_checksum(table.items()))
    for column, (values, unit, doc) in table.items():
        values = np.asarray(values)
        is_text = values.dtype.kind in "OUT"
        values = _encoded(values.tolist()) if is_text else values
        packing = {"compression": "gzip", "shuffle": True} if values.nbytes > COMPRESS_ABOVE_BYTES else {}
        dataset = group.create_dataset(column, data=values, track_times=False, **packing)
        units = {} if is_text else {"units": schema.COUNTS.sub("1", unit)}
        _annotate(dataset, unit=unit, description=doc, long_name=doc, **units)
    group[index].make_scale(index)
    _attach(group[index], [group[column] for column in table if column != index])


def _attach(scale: h5py.Dataset, columns: Sequence[h5py.Dataset]) -> None:
    """Make `scale` the dimension of columns: the attributes of HDF5's dimension scales, all references at once, as
    `attach_scale` writes the whole list again for each column."""
    to_scale = np.empty(1, dtype=h5py.vlen_dtype(h5py.ref_dtype))
    to_scale[0] = np.array([scale.ref], dtype=h5py.ref_dtype)
    for column in columns:
        column.attrs["DIMENSION_LIST"] = to_scale
    if columns:
        scale.attrs["REFERENCE_LIST"] = np.array([(column.ref, 0) for column in columns], dtype=_ATTACHED)


def _stored(value: Any) -> Any:
    """The value as HDF5 stores it, and as checksums use it (the reader reverses it): texts lose NULs at
    their end, truth is int8, an empty list is an empty text."""
    if isinstance(value, bool):
        return np.int8(value)
    if isinstance(value, str):
        return value.rstrip("\0")
    if isinstance(value, np.ndarray) and value.dtype.kind in "OUT":
        return np.array([_stored(text) for text in value.tolist()], dtype=object)
    return [_stored(text) for text in value] or "" if isinstance(value, list) else value


def _annotate(item: h5py.Group | h5py.Dataset, **attributes: Any) -> None:
    """Attach attributes to a file, group or dataset."""
    for name, value in attributes.items():
        values = np.asarray(_encoded(value) if isinstance(value, str | list) else value)
        space = h5s.create_simple(values.shape) if values.ndim else _ONE
        stored_type = h5t.py_create(values.dtype, logical=True)  # item.attrs takes twice as long
        h5a.create(item.id, name.encode(), stored_type, space).write(values)


def _encoded(text: str | list[str]) -> np.ndarray:
    """A text or texts as HDF5 strings of fixed length (see the docstring of this module)."""
    values = np.array([t.encode() for t in text] if isinstance(text, list) else text.encode(), dtype="S")
    encoding = "ascii" if "".join(text).isascii() else "utf-8"
    return values.astype(h5py.string_dtype(encoding, max(values.dtype.itemsize, 1)))


class Recorder:
    """Writes snapshots of the results file during a run, for at most 2 % of its wall time.

    The first `record` writes, so that an unwritable path fails early; later ones write if enough time has passed since
    the last snapshot; `write` always does.
    """

    def __init__(self, path: str | Path, meta: Mapping[str, Any], sites: Table):
        self._path = path
        self._meta = {"created_utc": _now_utc(), **meta}
        self._sites = sites
        self._due = -float("inf")

    def record(self, history: History) -> bool:
        """Write a snapshot if one is due; returns whether it did. Raises as `write_run`."""
        if time.perf_counter() < self._due:
            return False
        self.write(history)
        return True

    def write(self, history: History, **final_meta: Any) -> None:
        """Write a snapshot; the last one has the attributes `status`, `stop_reason` and `params_digest`."""
        start = time.perf_counter()
        write_run(self._path, {**self._meta, **final_meta, "updated_utc": _now_utc()}, self._sites, history)
        end = time.perf_counter()
        self._due = end + WRITE_SHARE * (end - start)


def _now_utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment(mpi_library: str = "") -> dict[str, str | bool]:
    """Attributes of the results file that describe this process (see `schema.ATTRIBUTES`).

    Versions are read from package metadata, without imports. `mpi_library` is the text of MPI_Get_library_version,
    which only the code that initialised MPI can call. Unknown values are empty.
    """
    commit, dirty = _source(Path(hpctrip.__file__).parents[1])
    return {
        "hpctrip_version": hpctrip.__version__,
        "python_version": platform.python_version(),
        **{f"{name}_version": _version(name) for name in ("torch", "numpy", "h5py", "mpi4py")},
        "mpi_library": mpi_library.strip("\0 \n"),
        "git_commit": commit,
        "git_dirty": dirty,
        "command": encodable(shlex.join(sys.orig_argv)),
        "folder": encodable(os.getcwd()),
        **{name: encodable(os.environ.get(variable, "")) for name, variable in SLURM.items()},
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _source(tree: Path) -> tuple[str, bool]:
    """(commit, dirty) of a source tree; ("", False) where it is not the top of a git checkout.

    A site-packages folder may lie inside the checkout of something else, so only a `.git` right here counts.
    """
    if not (tree / ".git").exists():
        return "", False
    # one call for both, which takes no lock, as many jobs may start in one checkout; tags are passed over
    describe = ("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(tree), *describe],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "", False
    commit, _, dirty = done.stdout.strip().partition("-")
    return commit, bool(dirty)
