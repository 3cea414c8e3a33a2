"""The files that an input names are read here: regular files of bounded size, whole. Anything else is one clear line.

A path may come from a stranger's input, and its content from anyone. A pipe or a device would be waited for without
end, and a few kilobytes of gzip may hold terabytes; so every reader says how much it takes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

from pydantic import AfterValidator

from hpctrip.base.errors import InputError

GZIP_MAGIC = b"\x1f\x8b"
GET_AGAIN = "copy or fetch the file again"
LONGEST_NAME_BYTES = 255
"""Of one part of a path, on the file systems in use."""
LONGEST_PATH_BYTES = 3000
"""Of a path as it is given: the system takes 4,096, with the working directory and what is appended."""


def nameable(value: str) -> str:
    """`value`, unless no file can have this path. Raises ValueError. Looks at no file."""
    if "\0" in value:
        raise ValueError("names no file: it holds a NUL character")
    longest = max(len(os.fsencode(part)) for part in value.split("/"))
    for length, most in ((longest, LONGEST_NAME_BYTES), (len(os.fsencode(value)), LONGEST_PATH_BYTES)):
        if length > most:
            raise ValueError(f"names no file: File name too long ({length:,} bytes, the most is {most:,})")
    try:
        Path(value).expanduser()
    except RuntimeError:
        user = value.split("/")[0].removeprefix("~")
        raise ValueError(f"names no file: there is no user {user!r} with a home folder") from None
    return value


PathName = Annotated[str, AfterValidator(nameable)]
"""The type of an input key that names a file, a folder or a pattern of them."""


def beside(folder: str, path: str) -> str:
    """Where the path leads that a file in `folder` names."""
    return path if path.startswith("~") else os.path.join(folder, path)


def named_path(value: str, place: str) -> Path:
    """The path that a user wrote, with "~" for a home folder. InputError at `place` where it can name nothing."""
    try:
        path = Path(value).expanduser()
        os.stat(path)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return path  # whoever opens it says what it should have been
        raise InputError(place, f"names no file ({_reason(error)})", "give the path of a file") from None
    return path


def check_folder(path: str | Path) -> None:
    """Raise InputError where something else than a folder has this path, or the path of a folder that it lies in. A
    path at which nothing is yet is fine."""
    path = Path(path)
    for part in (path, *path.parents):
        if os.path.lexists(part):
            if not os.path.isdir(part):
                raise InputError(str(part), "is no folder", "name a folder, or what is to become one")
            return


def read_file(path: str | Path, max_bytes: int, place: str = "", links: bool = True) -> bytes:
    """The bytes of a regular file. Raises InputError at `place` (else: the path) where it is none, holds more than
    `max_bytes` or cannot be read; without `links` also where it is a symbolic link, which would show another file."""
    place = place or str(path)
    with _opened(path, place, links) as file:
        size = _checked_size(file, max_bytes, path, place)
        pieces = [
            file.read(size + 1)
        ]  # asking for max_bytes would allocate them, however little there is to read
        total = len(pieces[0])
        # a file that grows, or one of the system's, which have no size
        while size < total <= max_bytes and (piece := file.read(2**20)):
            pieces.append(piece)
            total += len(piece)
    if total > max_bytes:
        raise _too_long(total, max_bytes, path, place)
    return b"".join(pieces)


def read_text(path: str | Path, max_bytes: int, place: str = "") -> str:
    """`read_file` of a file that is UTF-8 text. Raises InputError where it is not, too."""
    try:
        return read_file(path, max_bytes, place).decode()
    except UnicodeDecodeError:
        raise InputError(place or str(path), "cannot be read (not a UTF-8 text)") from None


def check_file(path: str | Path, max_bytes: float = math.inf, place: str = "") -> None:
    """Raise InputError as `read_file` would, without reading: for files that a library reads by itself."""
    place = place or str(path)
    with _opened(path, place) as file:
        _checked_size(file, max_bytes, path, place)


def _checked_size(file: IO[bytes], max_bytes: float, path: str | Path, place: str) -> int:
    size = os.fstat(file.fileno()).st_size
    if size > max_bytes:
        raise _too_long(size, max_bytes, path, place)
    return size


def _too_long(size: int, max_bytes: float, path: str | Path, place: str) -> InputError:
    return InputError(place, f"{_its(path, place)}holds {size:,} bytes, at most {max_bytes:,} are read")


def open_at_once(path: str | Path, flags: int, links: bool = False) -> int:
    """The number of the file of this name, open. No pipe is waited for, and no link followed unless `links`: somebody
    may have put one there. What it is the caller has to look at."""
    no_surprise = os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    return os.open(path, flags | no_surprise, 0o666)


@contextmanager
def _opened(path: str | Path, place: str, links: bool = True) -> Iterator[IO[bytes]]:
    """A regular file, open to be read; whatever fails in opening or reading is an InputError at `place`."""
    try:
        with open(path, "rb", opener=lambda name, flags: open_at_once(name, flags, links)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(place, f"{_its(path, place)}is no regular file", "give the path of a file")
            yield file
    except FileNotFoundError:
        raise InputError(place, f"{_its(path, place)}no such file", "check the path") from None
    except (OSError, ValueError) as error:
        if not links and os.path.islink(path):
            problem = f"{_its(path, place)}is a symbolic link, which is not followed here"
            raise InputError(place, problem, "put the file itself there") from None
        raise InputError(
            place, f"{_its(path, place)}cannot be read ({_reason(error)})", "check the path and permissions"
        ) from None


def _its(path: str | Path, place: str) -> str:
    """The path as the beginning of what is wrong with it, where the place is not or does not end with its name."""
    return "" if place == str(path) or place.endswith(("'", '"')) else f"{path}: "


def gunzipped(data: bytes, max_bytes: int, place: str) -> bytes:
    """What gzipped data hold; other data as they are. Raises InputError where they are damaged or hold more than
    `max_bytes`."""
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        with gzip.open(io.BytesIO(data)) as file:
            content = file.read(max_bytes + 1)
    except EOFError:
        raise InputError(place, "the gzip stream ends too early: the file is truncated", GET_AGAIN) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(place, f"the gzip stream is damaged ({error})", GET_AGAIN) from None
    if len(content) > max_bytes:
        raise InputError(
            place, f"holds more than {max_bytes:,} bytes when unpacked, which is the most that is read"
        )
    return content


def digest(data: bytes) -> str:
    """The content digest by which files are recorded and compared: BLAKE2b of 16 bytes, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_file(path: str | Path, place: str = "") -> str:
    """The content digest of a regular file of any size, which is read in pieces. InputError as `read_file`."""
    content = hashlib.blake2b(digest_size=16)
    with _opened(path, place or str(path)) as file:
        while piece := file.read(2**20):
            content.update(piece)
    return content.hexdigest()


def _reason(error: Exception) -> str:
    """Why a path cannot be used, without Python's numbers."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
