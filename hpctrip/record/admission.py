"""The door of HDF5 files: what one may be made of, checked before any value of it is read.

An HDF5 file may be more than data. A link or a dataset may lie in another file, which is then read in its place; a
filter may name a shared library to be loaded; sizes are claims, and one column may have a hundred names. So a file is
read whole into memory (a copy of its own: nobody changes it meanwhile, no lock is needed, a pipe is not waited for) and
its structure is held against the little that hpctrip writes: a root with groups, groups with columns. Each is reached
once, by a hard link, and stored here: contiguous, compact, or in chunks packed with gzip and shuffle. Values are
numbers of at most 8 bytes and texts of fixed length, in one dimension. Low-level calls walk, which follow nothing.

The HDF5 library itself parses what it is given; its own faults are not caught here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from pathlib import Path

import h5py
from h5py import h5a, h5d, h5f, h5g, h5l, h5o, h5pl, h5s, h5t, h5z

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file
from hpctrip.base.text import printable

MAX_BYTES = 2 * 2**30
"""Of all values of a file, unpacked: 30 times a run of 10,000 rounds of 100 sites."""
MAX_OBJECTS = 1000
"""Groups and columns of a file. A run has about 70."""
MAX_ATTRIBUTES = 1000
"""Of one object."""
MAX_ATTRIBUTE_BYTES = 64 * 2**20
"""Of all attributes together."""
MAX_CHUNKS = 100_000
"""Of one column; and no chunk is larger than MAX_CHUNK_BYTES."""
MAX_CHUNK_BYTES = 64 * 2**20

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_LAYOUTS = (h5d.COMPACT, h5d.CONTIGUOUS, h5d.CHUNKED)
_FILTERS = (h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE)
_SCALE_MARKS = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST"}
"""Attributes that say which column is another's coordinate; hpctrip writes them for others and never reads them."""
_EXPANSION = 1032
"""The most that deflate can expand: whatever claims more is not stored."""
_HEADER = b"OHDR"
"""Begins every object of an HDF5 file: with it and the name of a form, a file without signature is a damaged one."""
_TEXT_BYTES = 64
"""What a text takes in memory, however short."""


@contextlib.contextmanager
def admitted(path: str | Path, *forms: str) -> Iterator[h5py.File]:
    """The HDF5 file at `path`, open for reading, once its structure is known to be harmless. Its
    attribute `format` must say one of `forms`.

    Raises InputError, in one line that names the file, for whatever is wrong with it, also while it is used;
    DamagedError where it is one of `forms` and cannot be read to its end, or empty.
    """
    data = read_file(path)
    size, ours = len(data), any(form.encode() in data for form in forms)
    if not data.startswith(_SIGNATURE):
        kind = DamagedError if not data or (ours and _HEADER in data) else InputError
        raise kind(str(path), "is not an HDF5 file", "give a results file that `hpctrip run` wrote")
    try:
        with _no_plugins(), h5py.File(h5f.open_file_image(data)) as file:
            del data  # HDF5 has a copy
            if _format(file) not in forms:
                what = "table of runs" if forms == ("hpctrip table",) else "results file"
                raise InputError(
                    str(path), f"is not an hpctrip {what}", "give a file that `hpctrip run` wrote"
                )
            try:
                _Walk(size).group(h5g.open(file.id, b"/"), "")
            except _Refused as refused:
                raise InputError(
                    str(path), str(refused), "hpctrip writes no such file; restore a copy or run again"
                ) from None
            yield file
    except InputError:
        raise
    # on a damaged file h5py raises nearly anything: OSError, KeyError, MemoryError...
    except Exception as error:
        raise damaged(path, error, DamagedError if ours else InputError) from error


class DamagedError(InputError):
    """A file of ours that has lost something, or an empty one: nothing is lost with it that a whole one would not
    have."""


def damaged(path: str | Path, error: Exception, sort: type[InputError] = DamagedError) -> InputError:
    """What is said of a file that cannot be read to its end."""
    cause = printable(" ".join(str(error).split()) or type(error).__name__)
    return sort(str(path), f"is damaged ({cause})", "restore a copy or run again")


class _Refused(Exception):
    """An object of the file, and what it is that it must not be."""

    def __init__(self, place: str, problem: str):
        super().__init__(f"{printable(place, 100) or '/'} {problem}")


class _Walk:
    """One walk over the objects of a file, with what has been found so far."""

    def __init__(self, file_bytes: int):
        self.file_bytes = file_bytes
        self.seen: set[int] = set()
        self.stored_bytes = self.value_bytes = self.attribute_bytes = 0

    def group(self, group: h5g.GroupID, place: str) -> None:
        """The root, whose place is "", or a group of columns."""
        self._first_time(group, place)
        self._attributes(group, place)
        for name in _links(group, place):
            inside = f"{place}/{_name(name, place)}"
            if group.links.get_info(name).type != h5l.TYPE_HARD:
                raise _Refused(inside, "is a link to elsewhere")
            item = h5o.open(group, name)
            if isinstance(item, h5g.GroupID) and not place:
                self.group(item, inside)
            elif isinstance(item, h5d.DatasetID) and place:
                self._dataset(item, inside)
            else:
                raise _Refused(inside, "is no column in a group")

    def _dataset(self, dataset: h5d.DatasetID, place: str) -> None:
        self._first_time(dataset, place)
        self._attributes(dataset, place, but=_SCALE_MARKS)
        how = dataset.get_create_plist()  # before anything else is asked: a virtual dataset opens its sources
        if how.get_layout() not in _LAYOUTS or how.get_external_count():
            raise _Refused(place, "is stored outside the file, or virtual")
        if any(how.get_filter(i)[0] not in _FILTERS for i in range(how.get_nfilters())):
            raise _Refused(place, "is packed with another filter than gzip and shuffle")
        size, shape = _plain(dataset.get_type(), place), _shape(dataset.get_space(), place)
        is_text, rows = dataset.get_type().get_class() == h5t.STRING, math.prod(shape)
        if not shape and not is_text:
            raise _Refused(place, "is a single number")
        stored = dataset.get_storage_size()
        self.stored_bytes += stored
        self.value_bytes += rows * (max(size, _TEXT_BYTES) if is_text else size)
        if rows * size > _EXPANSION * max(stored, 1) or self.value_bytes > MAX_BYTES:
            raise _Refused(place, f"has the impossible shape {shape} of values of {size:,} bytes")
        if self.stored_bytes > self.file_bytes:
            raise _Refused(place, "lies where other columns lie")
        if how.get_layout() == h5d.CHUNKED:
            (chunk,) = how.get_chunk()
            if chunk * size > MAX_CHUNK_BYTES or rows > chunk * MAX_CHUNKS:
                raise _Refused(place, f"has {rows:,} rows in chunks of {chunk:,}")

    def _first_time(self, item: h5g.GroupID | h5d.DatasetID, place: str) -> None:
        address = h5o.get_info(item).addr
        if address in self.seen:
            raise _Refused(place, "is another name of what was there before")
        self.seen.add(address)
        if len(self.seen) > MAX_OBJECTS:
            raise _Refused(place, f"is one object too many; at most {MAX_OBJECTS:,} are read")

    def _attributes(self, item: h5g.GroupID | h5d.DatasetID, place: str, but: Collection[str] = ()) -> None:
        number = h5a.get_num_attrs(item)
        if number > MAX_ATTRIBUTES:
            raise _Refused(place, f"has {number:,} attributes; at most {MAX_ATTRIBUTES:,} are read")
        for index in range(number):
            attribute = h5a.open(item, index=index)
            name, kind = _name(attribute.name, place), attribute.get_type()
            if name in but:
                continue
            name = f"{place}: attribute {name}".removeprefix(": ")
            size, shape = _plain(kind, name), _shape(attribute.get_space(), name)
            if shape and kind.get_class() != h5t.STRING:
                raise _Refused(name, f"is an array of numbers, of shape {shape}")
            self.attribute_bytes += max(size, _TEXT_BYTES) * math.prod(shape)
            if self.attribute_bytes > MAX_ATTRIBUTE_BYTES:
                raise _Refused(
                    name, f"is too large: all attributes hold at most {MAX_ATTRIBUTE_BYTES:,} bytes"
                )


def _format(file: h5py.File) -> str:
    """What the attribute `format` says; empty where it is no plain text."""
    if not h5a.exists(file.id, b"format"):
        return ""
    attribute = h5a.open(file.id, b"format")
    kind = attribute.get_type()
    is_text = kind.get_class() == h5t.STRING and not kind.is_variable_str() and kind.get_size() < 100
    if not is_text or attribute.get_space().get_simple_extent_type() != h5s.SCALAR:
        return ""
    return file.attrs["format"].decode()


def _links(group: h5g.GroupID, place: str) -> list[bytes]:
    """The names in a group."""
    names: list[bytes] = []

    def note(name: bytes) -> bool | None:
        names.append(name)
        return len(names) > MAX_OBJECTS or None  # anything but None ends the iteration

    group.links.iterate(note)
    if len(names) > MAX_OBJECTS:
        raise _Refused(place, f"holds more than {MAX_OBJECTS:,} objects")
    return names


def _name(name: bytes | str, place: str) -> str:
    text = name.decode(errors="replace") if isinstance(name, bytes) else name
    if not text.isprintable() or "\N{REPLACEMENT CHARACTER}" in text or not 0 < len(text) <= 200:
        raise _Refused(f"{place}/{text}", "is no name of 1 to 200 printable characters")
    return text


def _plain(kind: h5t.TypeID, place: str) -> int:
    """The size in bytes of a value of this type, which must be a number, true or false, or a text of fixed length."""
    if kind.committed():
        raise _Refused(place, "has a type that is stored elsewhere")
    if kind.get_class() == h5t.STRING:
        if kind.is_variable_str():
            raise _Refused(place, "is a text of variable length")
    elif not _is_number(kind):
        raise _Refused(place, "is neither number nor text")
    return kind.get_size()


def _is_number(kind: h5t.TypeID) -> bool:
    if kind.get_class() not in (h5t.INTEGER, h5t.FLOAT, h5t.ENUM) or kind.get_size() > 8:
        return False
    # numpy's way of reading it: another size is an odd one, and an enumeration has metadata unless it is false and true
    dtype = kind.dtype
    return dtype.kind in "iufb" and dtype.itemsize == kind.get_size() and not dtype.metadata


def _shape(space: h5s.SpaceID, place: str) -> tuple[int, ...]:
    """() or (rows,)."""
    if space.get_simple_extent_type() not in (h5s.SCALAR, h5s.SIMPLE):
        raise _Refused(place, "holds nothing")
    shape = space.get_simple_extent_dims()
    if len(shape) > 1:
        raise _Refused(place, f"has {len(shape)} dimensions")
    return shape


@contextlib.contextmanager
def _no_plugins() -> Iterator[None]:
    """HDF5 looks for a library to load where a file names a filter that it does not know: nowhere, meanwhile."""
    folders = [h5pl.get(index) for index in range(h5pl.size())]
    for _ in folders:
        h5pl.remove(0)
    try:
        yield
    finally:
        for folder in folders:
            h5pl.append(folder)
