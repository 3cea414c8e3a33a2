"""Opens an HDF5 file of hpctrip after checking that it is whole in itself.

A link or a dataset of an HDF5 file may lie in another file, and a filter may name a shared library to be loaded.
hpctrip writes neither, so such a file is refused before any value is read. The low-level calls used follow no link.
The file is read whole into memory first, so it needs no lock and nobody changes it meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import h5py
from h5py import h5d, h5f, h5g, h5l, h5o, h5pl, h5z

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file
from hpctrip.base.text import printable

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_HEADER = b"OHDR"
"""Begins every object of an HDF5 file: without it, a text that names a format is no damaged file."""
_FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE)
_LAYOUTS = (h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED)


class DamagedError(InputError):
    """A file of hpctrip that is truncated, corrupted or empty."""


@contextlib.contextmanager
def open_checked(path: str | Path, *formats: str) -> Iterator[h5py.File]:
    """The HDF5 file at `path`, open for reading, whose attribute `format` must be one of `formats`.

    Raises InputError, in one line that names the file, for whatever is wrong with it, also while it is used;
    DamagedError where it is a file of hpctrip that cannot be read to its end, or empty.
    """
    data = read_file(path)
    is_ours = not data or (_HEADER in data and any(name.encode() in data for name in formats))
    error_type = DamagedError if is_ours else InputError
    if not data.startswith(_SIGNATURE):
        raise error_type(str(path), "is not an HDF5 file", "give a results file that `hpctrip run` wrote")
    try:
        with _no_plugins(), h5py.File(h5f.open_file_image(data)) as file:
            stored = file.attrs.get("format")
            if not isinstance(stored, bytes) or stored.decode() not in formats:
                what = "table of runs" if formats == ("hpctrip table",) else "results file"
                raise InputError(
                    str(path), f"is not an hpctrip {what}", "give a file that `hpctrip run` wrote"
                )
            if problem := next(_foreign_parts(h5g.open(file.id, b"/")), ""):
                raise InputError(
                    str(path), problem, "hpctrip writes no such file; restore a copy or run again"
                )
            yield file
    except InputError:
        raise
    # on a damaged file h5py raises nearly anything: OSError, KeyError, MemoryError...
    except Exception as error:
        raise damaged(path, error, error_type) from error


def damaged(path: str | Path, error: Exception, error_type: type[InputError] = DamagedError) -> InputError:
    """The error for a file that cannot be read to its end."""
    cause = printable(" ".join(str(error).split()) or type(error).__name__)
    return error_type(str(path), f"is damaged ({cause})", "restore a copy or run again")


def _foreign_parts(root: h5g.GroupID) -> Iterator[str]:
    """The parts of a file that hpctrip does not write: anything but groups of datasets, all stored in this file."""
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
            how = (
                dataset.get_create_plist()
            )  # asked first: anything else opens the sources of a virtual dataset
            if how.get_layout() not in _LAYOUTS or how.get_external_count():
                yield f"{inside} is stored outside the file, or virtual"
            elif any(how.get_filter(i)[0] not in _FILTERS for i in range(how.get_nfilters())):
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
    """HDF5 looks in no folder for filters to load."""
    folders = [h5pl.get(index) for index in range(h5pl.size())]
    for _ in folders:
        h5pl.remove(0)
    try:
        yield
    finally:
        for folder in folders:
            h5pl.append(folder)
