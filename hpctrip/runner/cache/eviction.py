"""Keeps the cache within its size: the least recently used models are removed first, then rounds.

A cached round spares every run on its path from training it, while a missing model costs only the rounds since the
model before it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpctrip.runner.cache.trajectory import KEY_DIGITS, ROUND, STATE, CacheFiles

LEFT = 0.875
"""Share of the bound to which the cache is shrunk, so that not every new file has to make room."""
LOOK_EVERY = 1 / 64
"""Share of the bound that a process may write before it checks the size again."""
LEFTOVER_S = 86400.0
"""Age at which a temporary file is that of a process that was killed: others are renamed at once."""
_ALL = "f" * KEY_DIGITS
"""The lock on removing files; no round has this key."""
_FOLDER = re.compile(r"[0-9a-f]{2}")
_OWN = re.compile(
    rf"[0-9a-f]{{{KEY_DIGITS - 2}}}({re.escape(ROUND)}|{re.escape(STATE)})(\.[0-9a-f]{{16}}\.tmp)?"
)


class _File(NamedTuple):
    """A file of the cache; sorted in the order of removal."""

    is_round: bool
    used_s: float
    path: Path
    num_bytes: int
    is_leftover: bool


class Bound:
    """Keeps the cache within its size, for one process that writes to it."""

    def __init__(self, files: CacheFiles, most_bytes: float):
        self._files, self._most_bytes = files, most_bytes
        self._looked_bytes = -float("inf")

    def keep(self) -> None:
        """Remove files where the cache is too large. The size is checked at first and then after every LOOK_EVERY, by
        one process at a time."""
        if self._files.written_bytes - self._looked_bytes < LOOK_EVERY * self._most_bytes:
            return
        self._looked_bytes = self._files.written_bytes
        if self._files.locks.take(_ALL):
            try:
                shrink(self._files.folder, self._most_bytes)
            finally:
                self._files.locks.give_back(_ALL)


def shrink(folder: Path, most_bytes: float) -> None:
    """Remove files until the folder is within its bound; files that hpctrip did not name stay."""
    files = sorted(_files(folder))
    total = sum(file.num_bytes for file in files)
    enough = total if total <= most_bytes else LEFT * most_bytes
    for file in files:
        if file.is_leftover or total > enough:
            with suppress(OSError):
                file.path.unlink()
            total -= file.num_bytes


def _files(folder: Path) -> Iterator[_File]:
    long_ago_s = time.time() - LEFTOVER_S
    for inner in _entries(folder):
        if not _FOLDER.fullmatch(inner.name):
            continue
        for entry in _entries(Path(inner.path)):
            if not (own := _OWN.fullmatch(entry.name)):
                continue
            with suppress(OSError):  # removed meanwhile
                about = entry.stat(follow_symlinks=False)
                is_leftover = own[2] is not None and about.st_mtime < long_ago_s
                if own[2] is None or is_leftover:
                    yield _File(own[1] == ROUND, about.st_mtime, Path(entry.path), about.st_size, is_leftover)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
