"""Rights named by keys, each held by one process at a time: single bytes of one lock file (Linux's open file
description locks). A right ends with its holder, however that ends, and nothing of it stays behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from hpctrip.base.io import unwritable
from hpctrip.record.lock import is_at

_DIGITS = 15
"""Of a key, so many hexadecimal ones number its byte: 2^60 lie within what a file may span."""
_FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's struct flock: type, whence, start, length, process (0)."""


class KeyLocks:
    """The rights of one folder. Keys are hexadecimal digits."""

    def __init__(self, path: str | Path):
        """`path` is the lock file; it is made when the first right is asked for."""
        self._path, self._number = Path(path), -1
        self.trouble = ""
        """Why rights are not kept from others here; empty: they are."""

    def take(self, key: str) -> bool:
        """Take a right, unless another process has it; never waits. Where the system knows no such locks everybody has
        every right, and `trouble` says so. Raises as `replace_file` where the lock file cannot be made."""
        try:
            self._open()
            return self._set(key, fcntl.F_WRLCK)
        except OSError as error:
            raise unwritable(self._path, error) from error

    def give_back(self, key: str) -> None:
        """Let others have it. A right that is not held is none to give back."""
        if self._number >= 0:
            with contextlib.suppress(OSError):
                self._set(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Give back every right."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _open(self) -> None:
        """Have the lock file that lies there now open: its folder may have been removed, and the rights with it."""
        if self._number >= 0 and is_at(self._number, self._path):
            return
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # no link is followed, and no pipe waited for: somebody else may have put one there
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        self._number = os.open(self._path, flags, 0o666)

    def _set(self, key: str, kind: int) -> bool:
        command = getattr(fcntl, "F_OFD_SETLK", None)
        if command is None:
            self.trouble = "this system has no locks on parts of a file"
            return True
        try:
            fcntl.fcntl(self._number, command, _FLOCK.pack(kind, os.SEEK_SET, int(key[:_DIGITS], 16), 1, 0))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            self.trouble = f"{self._path.parent} cannot lock files ({error.strerror})"
        return True
