"""Validates the structure of an HDF5 file before its values are read.

Links and datasets of an HDF5 file can refer to other files, and filters can name shared libraries to load. hpctrip
writes neither, so such a file is refused before any value is read. The low-level calls used here follow no links. A
file is first read into memory, so it needs no lock and cannot change meanwhile. A large one, which writers replace by a
rename, stays on the disk, and only what is used of it is read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import h5py
from h5py import h5d, h5f, h5g, h5l, h5o, h5pl, h5z

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.io import read_file
from hpctrip.base.text import printable

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEADER = b"OHDR"
"""Signature of every object header: a text file that mentions a format has none and is not a damaged file."""
MOST_IN_MEMORY = 2**25
"""Bytes of the largest file that is read into memory as a whole."""
_FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE)
_LAYOUTS = (h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED)
_FAULTS = (AttributeError, AssertionError, ImportError, NameError, NotImplementedError)
"""Exceptions that no damaged file causes: they are faults of the program."""
TABLE = "hpctrip table"
"""Format of the tables that `hpctrip merge` writes."""


class DamagedError(InputError):
    """Raised for a results file that is truncated, corrupted or empty."""


class TableError(InputError):
    """Raised for a merged table where a results file is needed."""


@contextlib.contextmanager
def open_checked(path: str | Path, *formats: str) -> Iterator[h5py.File]:
    """Open the HDF5 file at `path` for reading, if its attribute `format` is one of `formats`.

    Raises InputError, in one line that names the file, for any fault, including those that show in the body of the
    context; DamagedError where a file of these formats is corrupted, or the file is empty.
    """
    is_large = os.path.isfile(path) and os.path.getsize(path) > MOST_IN_MEMORY
    data = b"" if is_large else read_file(path)

    def error_type() -> type[InputError]:
        content = read_file(path) if is_large else data
        is_ours = not content or (_HEADER in content and any(name.encode() in content for name in formats))
        return DamagedError if is_ours else InputError

    if not (h5f.is_hdf5(os.fsencode(path)) if is_large else data.startswith(_SIGNATURE)):
        raise error_type()(str(path), "is not an HDF5 file", "give a results file that `hpctrip run` wrote")
    try:
        with _no_plugins(), _opened(path, data) as file:
            stored = file.attrs.get("format")
            if not isinstance(stored, bytes) or stored.decode() not in formats:
                if stored == TABLE.encode():
                    problem = "is a table of runs, not a results file"
                    raise TableError(str(path), problem, "give the files that it was merged from")
                what = "table of runs" if formats == (TABLE,) else "results file"
                raise InputError(
                    str(path), f"is not an hpctrip {what}", "give a file that `hpctrip run` wrote"
                )
            if problem := next(_foreign_parts(h5g.open(file.id, b"/")), ""):
                raise InputError(
                    str(path), problem, "hpctrip writes no such file; restore a copy or run again"
                )
            yield file
    except (HpctripError, *_FAULTS):
        raise
    # h5py raises many types of errors for damaged files: OSError, KeyError, MemoryError...
    except Exception as error:
        cause = printable(" ".join(str(error).split()) or type(error).__name__)
        raise error_type()(str(path), f"is damaged ({cause})", "restore a copy or run again") from error


def _opened(path: str | Path, data: bytes) -> h5py.File:
    """The file whose bytes are `data`, or the large one at `path`."""
    return h5py.File(h5f.open_file_image(data)) if data else h5py.File(path, "r", locking=False)


def _foreign_parts(root: h5g.GroupID) -> Iterator[str]:
    """Describe the parts of a file that hpctrip never writes: all but groups of datasets stored in the file itself."""
    for group_name, group in _items(root):
        place = f"/{group_name.decode(errors='replace')}"
        if not isinstance(group, h5g.GroupID):
            yield f"{place} is not a group in the file"
            continue
        for name, dataset in _items(group):
            inside = f"{place}/{name.decode(errors='replace')}"
            if not isinstance(dataset, h5d.DatasetID):
                yield f"{inside} is not a column in the file"
                continue
            # read first: other calls would open the source files of a virtual dataset
            creation = dataset.get_create_plist()
            if creation.get_layout() not in _LAYOUTS or creation.get_external_count():
                yield f"{inside} is stored outside the file, or virtual"
            elif any(creation.get_filter(i)[0] not in _FILTERS for i in range(creation.get_nfilters())):
                yield f"{inside} is packed with another filter than gzip and shuffle"


def _items(group: h5g.GroupID) -> Iterator[tuple[bytes, h5o.ObjectID | None]]:
    """Names and objects of a group; None for an object behind a soft or external link, which is not followed."""
    names: list[bytes] = []
    group.links.iterate(names.append)
    for name in names:
        is_here = group.links.get_info(name).type == h5l.TYPE_HARD
        yield name, h5o.open(group, name) if is_here else None


@contextlib.contextmanager
def _no_plugins() -> Iterator[None]:
    """Context in which HDF5 loads no filter plug-ins."""
    folders = [h5pl.get(index) for index in range(h5pl.size())]
    for _ in folders:
        h5pl.remove(0)
    try:
        yield
    finally:
        for folder in folders:
            h5pl.append(folder)
