"""Tar archives, read once from front to back. A truncated or damaged archive is an error that names it."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hpctrip.base.errors import InputError


@dataclass(frozen=True)
class Member:
    """An entry of an archive that is not a folder: a file, or a link or device."""

    name: str
    content: Callable[[], bytes]
    """Reads the file; call it before the next member is asked for. Raises InputError where the member is no file."""
    fraction: float
    """Share of the archive's bytes that has been read when this member comes, 0 to 1."""


def members(source: Path) -> Iterator[Member]:
    """The members of a tar archive in their order, plain or packed by gzip, bzip2 or xz (its content tells which).

    Nothing is unpacked to disk. Raises InputError where the file is no such archive, ends too early or is damaged.
    """
    size = source.stat().st_size
    with (
        source.open("rb") as raw,
        _damage_reported(source),
        tarfile.open(fileobj=raw, tarinfo=_Header) as archive,
    ):
        for header in archive:
            if not header.isdir():
                yield Member(header.name, partial(_content, source, archive, header), raw.tell() / size)
        while archive.fileobj.read(2**20):
            pass  # gzip, bzip2 and xz compare their checksum when the end is reached


class _Header(tarfile.TarInfo):
    """A member's header. tarfile itself takes a damaged or missing header for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _Header:
        """The next header. Raises ReadError where there is none before the archive's end mark."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(str(error)) from None


def _content(source: Path, archive: tarfile.TarFile, header: tarfile.TarInfo) -> bytes:
    if not header.isreg():
        raise InputError(
            f"{source}: {header.name}", "is a link or a device", "pack the file itself: tar --dereference"
        )
    with _damage_reported(source):
        return archive.extractfile(header).read()


@contextmanager
def _damage_reported(source: Path) -> Iterator[None]:
    """Turns what reading a damaged archive raises into an InputError. Errors of the disk pass through."""
    try:
        yield
    except Exception as error:  # tarfile, gzip, bz2, lzma and zlib have no common base
        if isinstance(error, OSError) and error.errno is not None:
            raise
        problem = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(":")
        raise InputError(
            str(source),
            f"not a whole tar archive ({problem})",
            "copy or fetch the file again; tar is read plain or packed by gzip, bzip2 or xz",
        ) from None
