"""Tar archives, read once from front to back, with a bound on everything that their headers can ask for."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpctrip.base.errors import InputError

MAX_UNPACKED_BYTES = 2**33
"""Of an archive, unpacked: twice Speech Commands."""
MAX_MEMBERS = 1_000_000
"""Of an archive: nine times those of Speech Commands."""
MAX_HEADER_BYTES = 2**20
"""Of a header: of a long name, say, whose size the archive announces."""

_OPENERS = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}


@dataclass(frozen=True)
class Member:
    """A file in an archive, or a link or device that stands for one."""

    name: str
    content: Callable[[int], bytes]
    """Reads it, before the next member is asked for. InputError where it holds more bytes than that, or is no file of
    its own."""
    fraction: float
    """Of the archive, what has been read when this member comes."""


def members(source: Path) -> Iterator[Member]:
    """The members of a tar archive, plain or packed by gzip, bzip2 or xz (its first bytes tell), without its folders.

    Raises InputError where it is no such archive, ends too early, is damaged, or goes beyond one of the bounds.
    """
    if not source.is_file():  # a pipe would be waited for without end
        raise InputError(str(source), "is no regular file", "give the path of an archive")
    size = source.stat().st_size
    with source.open("rb") as raw:
        start = raw.read(max(map(len, _OPENERS)))
        raw.seek(0)
        opener = next((opener for magic, opener in _OPENERS.items() if start.startswith(magic)), None)
        file = _Bounded(opener(raw) if opener else raw)
        with _reported(source):
            archive = tarfile.TarFile(fileobj=file)
        for _ in range(MAX_MEMBERS + 1):
            with _reported(source):
                member = archive.next()
            if member is None:
                with _reported(source):
                    file.finish()
                return
            if not member.isdir():
                yield Member(member.name, _reader(source, file, member), raw.tell() / size)
        raise InputError(
            str(source), f"holds more than {MAX_MEMBERS:,} members, which is the most that is read"
        )


def _reader(source: Path, file: _Bounded, member: tarfile.TarInfo) -> Callable[[int], bytes]:
    def content(max_bytes: int) -> bytes:
        place = f"{source}: {member.name}"
        if not member.isreg() or member.issparse():
            raise InputError(
                place, "is a link, a device or a sparse file", "pack the file itself: tar --dereference"
            )
        if member.size > max_bytes:
            raise InputError(
                place, f"holds {member.size:,} bytes, at most {max_bytes:,} are read", "leave it out"
            )
        with _reported(source):
            file.seek(member.offset_data)
            data = file.read(member.size, max_bytes)
            if len(data) < member.size:
                raise tarfile.ReadError("unexpected end of data")
        return data

    return content


class _Bounded:
    """What tarfile needs of a file to go through it once. It believes the sizes that headers announce, also those
    below 0, which would lead it back for ever."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._last = b""

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int) -> int:
        if not self._file.tell() <= offset <= MAX_UNPACKED_BYTES:
            raise tarfile.ReadError(
                f"a header leads to byte {offset:,}; at most {MAX_UNPACKED_BYTES:,} are unpacked"
            )
        return self._file.seek(offset)

    def read(self, size: int, max_bytes: int = MAX_HEADER_BYTES) -> bytes:
        if not 0 <= size <= max_bytes:
            raise tarfile.ReadError(f"a header asks for {size:,} bytes; at most {max_bytes:,} are read")
        self._last = self._file.read(size)
        return self._last

    def finish(self) -> None:
        """Go to the end, where gzip and its like have their checksums. tarfile ends quietly at a damaged header."""
        if self._last != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("no end mark")
        if len(self.read(MAX_HEADER_BYTES)) == MAX_HEADER_BYTES:
            raise tarfile.ReadError("more data behind its end")


@contextmanager
def _reported(source: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # the disk's; those of gzip and bz2 have no number
            raise
        raise _not_whole(source, error) from None
    except Exception as error:  # what tarfile raises of odd headers has no common base
        raise _not_whole(source, error) from None


def _not_whole(source: Path, error: Exception) -> InputError:
    problem = (str(error).strip() or type(error).__name__).splitlines()[0]
    return InputError(
        str(source),
        f"not a whole tar archive ({problem})",
        "copy or fetch the file again; tar is read plain or packed by gzip, bzip2 or xz",
    )
