"""Whole files: reading them, writing them atomically, and the errors that name them; JSON text; the console stream."""

from __future__ import annotations

import errno
import glob
import gzip
import hashlib
import json
import os
import secrets
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO, TextIO

from pydantic import AfterValidator
from pydantic_core import to_jsonable_python

from hpctrip.base.errors import Fault, HpctripError, InputError
from hpctrip.base.text import encodable

GZIP_MAGIC = b"\x1f\x8b"
GET_AGAIN = "copy or fetch the file again"


# Names


def expanded(value: str) -> str:
    """`value` with "~" expanded. ValueError where the operating system accepts no file of this name, or "~user" is
    unknown."""
    try:
        os.lstat(Path(value).expanduser())
    except (OSError, RuntimeError, ValueError) as error:
        # a file that does not exist, or not on this machine, is reported by whoever opens it
        if not isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise ValueError(f"names no file ({_reason(error)})") from None
    return os.path.expanduser(value)


PathName = Annotated[str, AfterValidator(expanded)]
"""Type of an input key that names a file, a folder or a pattern of them. "~" is expanded when the input is read."""


def user_path(value: str | Path, place: str) -> str:
    """The path that the user wrote, with "~" expanded. InputError at `place` where no file can have this name."""
    try:
        return expanded(str(value))
    except ValueError as error:
        raise InputError(place, str(error), "give the path of a file") from None


def named_path(value: str | Path, place: str) -> Path:
    """`user_path` as a Path."""
    return Path(user_path(value, place))


def is_pattern(text: str) -> bool:
    """Whether a path, or a part of one, has a character of a pattern."""
    return any(mark in text for mark in "*?[")


def matching(pattern: str | Path) -> list[Path]:
    """The path itself if it exists; else all paths that match it as a glob pattern, sorted.

    Its longest beginning that exists is taken as it is, so that the names of existing folders may hold *, ? and [. "~"
    is expanded. InputError where no file can have this name.
    """
    path = named_path(pattern, str(pattern))
    if os.path.lexists(path):
        return [path]
    folder = next(filter(os.path.exists, path.parents), Path())
    names = glob.glob(str(path.relative_to(folder)), root_dir=folder, recursive=True)
    return sorted(folder / name for name in names)


def beside(folder: str, path: str) -> str:
    """A path that a file in `folder` names, relative to the working directory."""
    return path if path.startswith("~") else os.path.join(folder, path)


def absolute(path: str) -> str:
    """The path from the root; one that begins with "~" stays as it is."""
    return path if path.startswith(("~", "/")) else os.path.abspath(path)


def check_folder(path: str | Path) -> None:
    """Raise InputError where `path` is not a folder and cannot become one. A path where nothing is yet is fine."""
    path = Path(path)
    for part in (path, *path.parents):
        if os.path.lexists(part):
            if not os.path.isdir(part):
                raise InputError(str(part), "is not a folder", "name an existing or a new folder")
            return


def check_suffix(path: str | Path, suffixes: Sequence[str]) -> None:
    """Raise InputError unless the file name ends in one of `suffixes`."""
    name = str(path).rpartition("/")[2]  # empty for a folder
    if Path(name).suffix not in suffixes:
        raise InputError(
            str(path), f"does not end in {' or '.join(suffixes)}", f"name the file so, e.g. NAME{suffixes[0]}"
        )


def refuse_inputs(
    outputs: Iterable[str | Path], inputs: Iterable[str | Path], hint: str = "choose another by --out"
) -> None:
    """Raise InputError where an output file is also an input."""
    read = {os.path.realpath(path) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise InputError(str(path), "is an input, which is never overwritten", hint)


# Reading


def read_file(path: str | Path, place: str = "") -> bytes:
    """The bytes of a file. InputError at `place` (default: the path) where it cannot be read."""
    with _opened(path, place or str(path)) as file:
        return file.read()


def read_unpacked(path: str | Path, place: str = "") -> bytes:
    """The bytes of a file, decompressed where its first bytes say that it is gzipped. InputError as for `read_file`,
    and where the gzip stream is damaged."""
    place = place or str(path)
    data = read_file(path, place)
    if not data.startswith(GZIP_MAGIC):
        return data
    try:
        return gzip.decompress(data)
    except EOFError:
        raise InputError(place, "the gzip stream ends too early: the file is truncated", GET_AGAIN) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(place, f"the gzip stream is damaged ({error})", GET_AGAIN) from None


def read_text(path: str | Path, place: str = "") -> str:
    """The text of a UTF-8 file. InputError at `place` (default: the path) where it cannot be read."""
    try:
        return read_file(path, place).decode()
    except UnicodeDecodeError:
        raise InputError(
            place or str(path), "cannot be read (not a UTF-8 text)", "save it as UTF-8"
        ) from None


@contextmanager
def _opened(path: str | Path, place: str) -> Iterator[BinaryIO]:
    """A file open for reading; errors while opening or reading it become an InputError at `place`."""
    # the message names the path unless the place ends with it
    its = "" if place == str(path) or place.endswith(("'", '"')) else f"{path}: "
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):  # a pipe would block
        raise InputError(place, f"{its}is not a regular file", "give the path of a file")
    try:
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise InputError(place, f"{its}no such file", "check the path") from None
    except (OSError, ValueError) as error:
        problem = f"{its}cannot be read ({_reason(error)})"
        raise InputError(place, problem, "check the path and permissions") from None


def digest(data: bytes) -> str:
    """The content digest by which files are recorded and compared: BLAKE2b of 16 bytes, in hexadecimal."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_file(path: str | Path) -> str:
    """The content digest of a file, read in pieces. InputError as for `read_file`."""
    with _opened(path, str(path)) as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


# Writing


def replace_file(path: str | Path, data: bytes | Iterator[bytes | memoryview], durable: bool = True) -> None:
    """Write a file atomically, whole or in pieces: a temporary file in the same folder is written, synced and renamed.

    Without `durable` it is not synced, so that a power cut may leave it torn. Raises InputError where the file cannot
    be written and HpctripError where the disk is full.
    """
    path = Path(os.path.realpath(path))  # a link to another file system stays a link
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        _check_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "xb") as file:
            file.writelines(data if isinstance(data, Iterator) else [data])
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            aside.unlink()
    if durable:
        with suppress(OSError):  # a file system that cannot sync folders
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def append_to(path: str | Path) -> BinaryIO:
    """An unbuffered file to append to and to read, made with its folders. InputError where it cannot be written."""
    path = Path(path)
    try:
        _check_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "a+b", buffering=0)
    except OSError as error:
        raise unwritable(path, error) from error


def remove_file(path: str | Path) -> None:
    """Remove a file if it exists. InputError where it cannot be removed."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(Path(path), error, "cannot be removed:") from error


def remove_leftovers(path: str | Path) -> None:
    """Remove the temporary files of jobs that were killed while they wrote `path`. Only for its sole writer."""
    for leftover in glob.glob(f"{glob.escape(os.path.realpath(path))}.{'[0-9a-f]' * 16}.tmp"):
        with suppress(OSError):
            os.unlink(leftover)


def refuse_other(path: str | Path, is_ours: Callable[[bytes], bool], what: str, hint: str) -> None:
    """Raise InputError where a file exists whose content is not ours; `what` says what it is not."""
    if os.path.lexists(path) and not is_ours(read_file(path)):
        raise InputError(str(path), f"exists and is {what}", hint)


def write_new(files: Mapping[Path, bytes | Iterator[bytes]], overwrite: bool = False) -> list[Path]:
    """Write files with their folders and return their paths. InputError, and none is written, where one exists and
    `overwrite` is false."""
    for path in files:
        check_writable(path, overwrite)
    for path, content in files.items():
        replace_file(path, content)
    return list(files)


def check_writable(path: str | Path, overwrite: bool = False) -> None:
    """Raise InputError unless `replace_file(path, ...)` could work now; missing folders are fine."""
    path = Path(os.path.realpath(path))
    try:
        _check_file(path)
        if path.exists() and not overwrite:
            raise InputError(str(path), "exists already", "remove it, choose another name, or --overwrite")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "it is write-protected")
        with suppress(FileNotFoundError):  # a name that is too long or lies under a file
            os.lstat(f"{path}.{'0' * 16}.tmp")
        folder = next(parent for parent in path.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def _check_file(path: Path) -> None:
    """Raise OSError for a folder, and InputError for a device: /dev/null must not be replaced."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if path.exists() and not path.is_file():
        raise InputError(str(path), "is not a regular file", "choose another name")


_FULL = (errno.ENOSPC, errno.EDQUOT)
_HINTS = {
    errno.EISDIR: "choose another name, or a file inside it",
    **dict.fromkeys(_FULL, "free some space or choose another place"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "choose a place where you may write"),
}


def unwritable(path: Path, error: OSError, problem: str = "cannot be written:") -> HpctripError:
    """The error to raise where a file cannot be written: InputError, except for a full or failing disk."""
    hint = _HINTS.get(error.errno or 0, "choose another place")
    fault = Fault(str(path), f"{problem} {error.strerror}", hint)
    if error.errno in (*_FULL, errno.EIO):
        return HpctripError(str(fault))
    return InputError(faults=[fault])


def _reason(error: Exception) -> str:
    """Why a path cannot be used, without the number of the system's error."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


# Text for other programs and for the console


def json_text(value: Any) -> str:
    """Strict JSON, in ASCII, of mappings, lists, texts, numbers and arrays; NaN and infinity become null."""
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=lambda other: other.tolist())
    return json.dumps(plain, indent=2, allow_nan=False)


@contextmanager
def checked_output() -> Iterator[None]:
    """Flush standard output after the body. Raises HpctripError where it cannot be written, and where the body ends
    because a disk is full; nothing is said of a pipe that its reader has closed (`| head`)."""
    try:
        yield
        if sys.stdout is not None:  # it was closed before the start
            sys.stdout.flush()
    except OSError as error:
        if sys.stdout is not None and not _can_flush(sys.stdout):
            _discard(sys.stdout)
        elif error.errno not in (*_FULL, errno.EIO):  # EIO: a terminal that is gone
            raise
        if not isinstance(error, BrokenPipeError):
            place = Path(error.filename or "the output")
            raise HpctripError(str(unwritable(place, error))) from None


def _can_flush(stream: TextIO) -> bool:
    with suppress(OSError):
        stream.flush()
        return True
    return False


def _discard(stream: TextIO) -> None:
    """Send what a failed stream still holds, and gets, to nowhere: it would fail again, and set the exit code, when
    Python flushes it at exit."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), stream.fileno())


class BestEffortStream:
    """Text stream that drops its output once the stream below fails: a broken pipe (`| head`), a closed terminal, a
    full disk. Characters outside the encoding are escaped. Made for rich's `Console(file=...)`, which would end the
    process at a broken pipe."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        with suppress(OSError, ValueError):
            return self._stream is not None and self._stream.isatty()
        return False

    def write(self, text: str) -> int:
        """Write text; never raises."""
        self._try(lambda stream: stream.write(encodable(text, stream.encoding or "utf-8")))
        return len(text)

    def flush(self) -> None:
        """Flush; never raises."""
        self._try(lambda stream: stream.flush())

    def _try(self, act: Callable[[TextIO], Any]) -> None:
        if (stream := self._stream) is None:
            return
        try:
            act(stream)
        except BlockingIOError:
            pass  # a non-blocking terminal that is behind catches up
        except (OSError, ValueError):
            self._stream = None
            _discard(stream)
