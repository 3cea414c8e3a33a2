"""Locks named by keys, each held by one process at a time: single bytes of one lock file (open file description locks
of Linux). The kernel releases a lock when its process ends, whatever ends it."""

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
"""Number of hexadecimal digits of a key that number its byte: 2^60 bytes are within the largest size of a file."""
_FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's struct flock: type, whence, start, length, process (0)."""


class KeyLocks:
    """The locks of one folder. Keys are hexadecimal digits."""

    def __init__(self, path: str | Path):
        """`path` is the lock file; it is made when the first lock is taken."""
        self._path, self._number = Path(path), -1
        self.trouble = ""
        """The reason why locks do not exclude other processes here; empty: they do."""

    def take(self, key: str) -> bool:
        """Take a lock without waiting; returns whether it was free. On a system without such locks every lock is free,
        and `trouble` says so. Raises as `replace_file` where the lock file cannot be made."""
        try:
            self._open()
            return self._set(key, fcntl.F_WRLCK)
        except OSError as error:
            raise unwritable(self._path, error) from error

    def give_back(self, key: str) -> None:
        """Release a lock; nothing happens where it is not held."""
        if self._number >= 0:
            with contextlib.suppress(OSError):
                self._set(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Release every lock."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _open(self) -> None:
        """Open the lock file that is at the path now: the folder may have been removed, and its locks with it."""
        if self._number >= 0 and is_at(self._number, self._path):
            return
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
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
