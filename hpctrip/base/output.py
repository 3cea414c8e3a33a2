"""Files are written whole or not at all: aside, under a name that nobody can guess or has made before, and renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from hpctrip.base.errors import Fault, HpctripError, InputError
from hpctrip.base.files import open_at_once, read_file


def replace_file(path: str | Path, data: bytes, durable: bool = True) -> None:
    """Give a file new content at once or not at all, even if the job or the machine dies meanwhile.

    The content is written to a new file in the same folder, forced to disk and renamed. The name of that file is
    random and it must not exist: two jobs never share one, and no link that somebody put there is followed. What is no
    regular file, a device say, is never replaced. What need not be `durable` is not forced to disk: a power cut may
    leave it torn, so whoever reads it must be able to tell, and to do without. Raises InputError where nothing can be
    written there and HpctripError where the disk is full.
    """
    path = Path(os.path.realpath(path))  # a link to another file system stays a link
    aside = _aside(path)
    _refuse_other_than_files(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "xb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    if durable:
        _force(path.parent)


def append_to(path: str | Path) -> BinaryIO:
    """A file to append to, and to read, made with its folders where there is none. Raises InputError where something
    else than a regular file has this name: a link, which leads elsewhere, or a pipe, which would be waited for."""
    path = Path(path)
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_at_once(path, flags), "a+b", buffering=0)
    except OSError as error:
        if path.is_symlink():
            raise InputError(
                str(path), "is a symbolic link, which is not written through", "remove it"
            ) from None
        raise unwritable(path, error) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(str(path), "is no regular file", "remove it, or choose another name")
    return file


def _force(folder: Path) -> None:
    """Force the names in a folder to disk, where the file system lets one."""
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")


def remove_file(path: str | Path) -> None:
    """Remove a file, if there is one. Raises InputError where it stays: a folder has its name, say."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(Path(path), error, "cannot be removed:") from error


def remove_leftovers(path: str | Path) -> None:
    """Remove what jobs that were killed while they wrote this file have left. Only for whoever alone may write it."""
    path = Path(os.path.realpath(path))
    leftover = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):  # no such folder: nothing was left
        for name in os.listdir(path.parent):
            if leftover.fullmatch(name):
                with contextlib.suppress(OSError):
                    path.with_name(name).unlink()


def check_suffix(path: str | Path, suffixes: Sequence[str]) -> None:
    """Raise InputError unless the name ends in one of `suffixes`: by it a file is found again, in a folder say."""
    name = str(path).rpartition("/")[2]  # empty where a folder is meant
    if Path(name).suffix not in suffixes:
        raise InputError(
            str(path), f"does not end in {' or '.join(suffixes)}", f"name the file so, e.g. NAME{suffixes[0]}"
        )


def refuse_inputs(outputs: Iterable[str | Path], inputs: Iterable[str | Path]) -> None:
    """Raise InputError where a file that is to be written is one that is read."""
    read = {os.path.realpath(os.path.expanduser(path)) for path in inputs}
    for path in outputs:
        if os.path.realpath(path) in read:
            raise InputError(str(path), "is an input, which is never overwritten", "choose another name")


_MAX_EARLIER_BYTES = 2**31
"""Of a file that is there already."""


def refuse_other(
    path: str | Path, is_ours: Callable[[bytes], bool], what: str, way_out: str, links: bool = True
) -> None:
    """Raise InputError where a file is there that is not ours by its content, which `what` says of it, and so is not to
    be replaced without asking. `links`: as `read_file` takes it."""
    if os.path.lexists(path) and not is_ours(read_file(path, _MAX_EARLIER_BYTES, links=links)):
        raise InputError(str(path), f"exists and is {what}", way_out)


def write_new(files: Mapping[Path, bytes], overwrite: bool = False) -> list[Path]:
    """Write files, with their folders, all of them or none where one is there already and `overwrite` is not given
    (InputError). Returns their paths."""
    for path in files:
        check_writable(path, overwrite)
    for path, content in files.items():
        replace_file(path, content)
    return list(files)


def check_writable(path: str | Path, overwrite: bool = False) -> None:
    """Raise InputError unless `replace_file(path, ...)` could work now. Leaves nothing behind.

    Missing folders are fine: `replace_file` makes them.
    """
    path = Path(os.path.realpath(path))
    try:
        _refuse_other_than_files(path)
        if path.exists() and not overwrite:
            raise InputError(str(path), "exists already", "remove it, choose another name, or --overwrite")
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "it is write-protected")
        with contextlib.suppress(FileNotFoundError):
            # the name itself: too long, under a file, not reachable
            os.lstat(_aside(path))
        folder = next(parent for parent in path.parents if parent.exists())
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(path, error) from error


def _refuse_other_than_files(path: Path) -> None:
    """Raise InputError where something else than a regular file has this path."""
    try:
        if path.is_dir():
            raise unwritable(path, IsADirectoryError(errno.EISDIR, "it is a directory"))
        if path.exists() and not path.is_file():
            raise InputError(str(path), "is no regular file", "choose another name")
    except OSError as error:
        raise unwritable(path, error) from error


_WAYS_OUT = {
    errno.EISDIR: "choose another name, or a file inside it",
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some space or choose another place",
    errno.EACCES: "choose a place where you may write",
    errno.EPERM: "choose a place where you may write",
    errno.EROFS: "choose a place where you may write",
}


def unwritable(path: Path, error: OSError, problem: str = "cannot be written:") -> HpctripError:
    """One clear line. A disk that fills up during the run is no fault of the input, anything else is."""
    fault = Fault(
        str(path),
        f"{problem} {error.strerror}",
        _WAYS_OUT.get(error.errno or 0, "choose another place"),
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        return HpctripError(str(fault))
    return InputError(faults=[fault])
