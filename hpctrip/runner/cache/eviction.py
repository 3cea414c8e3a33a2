"""Keeping a folder of trajectories within its bound: models go first, then rounds, and those used longest ago first.

A round is worth more than its bytes: it spares a run from training wherever the path goes on, while a missing model
costs only the rounds since the one before it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpctrip.runner.cache.trajectory import KEY_DIGITS, ROUND, STATE, TrajectoryFiles

LEFT = 0.875
"""Share of the bound that is left once it was passed, so that not every new file has to make room."""
LOOK_EVERY = 1 / 64
"""A process looks again after it has written so much of the bound. In between, each may pass the bound by that."""
LEFTOVER_S = 86400.0
"""A file that is written aside is renamed at once; one that is older is that of a process that was killed."""
_ALL = "f" * KEY_DIGITS
"""The right to remove; no round has this key."""
_FOLDER = re.compile(r"[0-9a-f]{2}")
_OWN = re.compile(
    rf"[0-9a-f]{{{KEY_DIGITS - 2}}}({re.escape(ROUND)}|{re.escape(STATE)})(\.[0-9a-f]{{16}}\.tmp)?"
)


class _File(NamedTuple):
    """In the order in which they go."""

    is_round: bool
    used_s: float
    path: Path
    num_bytes: int
    is_leftover: bool


class Bound:
    """Looks after the size of a folder, on behalf of one process that writes there."""

    def __init__(self, files: TrajectoryFiles, most_bytes: float):
        self._files, self._most_bytes = files, most_bytes
        self._looked_bytes = -float("inf")

    def keep(self) -> None:
        """Make room where it is needed, and where it is time to look: at first, then after every LOOK_EVERY. One
        process does so at a time; whoever finds another one at it leaves it to that."""
        if self._files.written_bytes - self._looked_bytes < LOOK_EVERY * self._most_bytes:
            return
        self._looked_bytes = self._files.written_bytes
        if self._files.locks.take(_ALL):
            try:
                shrink(self._files.folder, self._most_bytes)
            finally:
                self._files.locks.give_back(_ALL)


def shrink(folder: Path, most_bytes: float) -> None:
    """Remove files until the folder is within its bound. Touches nothing that is not named as ours."""
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
    """What lies in a folder; nothing where it is none."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
