"""Files of the cache: the results of training rounds, and models from which a run can go on.

Training is a pure function of its input and of the cohorts so far. So a round has a key, a hash chained over both
(`key_after`), and runs that begin alike share the keys of their first rounds. A round is one small file, named by its
key, and a model another beside it (both in the format of record/container.py):

    FOLDER/ab/cdef....round     a `CachedRound`
    FOLDER/ab/cdef....state     a the `Model` after the round
    FOLDER/locks                locks on the rounds that are being trained

Every file is written to a temporary name and renamed, and may be removed at any time: a missing or damaged one is
trained again. So any number of processes can share the folder and be killed at any moment.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import math
import os
import re
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, replace_file, unwritable
from hpctrip.record.checkpoint import Model, history_arrays
from hpctrip.record.container import Arrays, Container
from hpctrip.record.lock import is_at
from hpctrip.record.schema import history_of
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.outcome import MEASURED, SITE_REPORTS, Outcome
from hpctrip.sim.rounds import History, RoundRow
from hpctrip.sim.step import Draft

KEY_DIGITS = 32
ROUND, STATE = ".round", ".state"
LOCKS = "locks"
LEFT = 0.875
"""Share of the bound to which the folder is shrunk, so that not every new file has to make room."""
LOOK_EVERY = 1 / 64
"""Share of the bound that a process may write before it checks the size again."""
LEFTOVER_S = 86400.0
"""Age at which a temporary file is that of a process that was killed: others are renamed at once."""
_OWN = re.compile(
    rf"[0-9a-f]{{{KEY_DIGITS - 2}}}({re.escape(ROUND)}|{re.escape(STATE)})(\.[0-9a-f]{{16}}\.tmp)?"
)
_LOCK_DIGITS = 15
"""Number of digits of a key that number its byte in the lock file: 2^60 is within the largest size of a file."""
_FLOCK = struct.Struct("@hhqqi4x")
"""The kernel's struct flock: type, whence, start, length, process (0)."""
_NO_TIME = {name: 0.0 for name in MEASURED if not name.endswith("_j")}
"""Wall times of a round that was taken from the cache."""


def key_after(key: str, times: RoundTimes, weights: np.ndarray, local_work: int | np.ndarray = 1) -> str:
    """The key of a round after the round of `key`: of the flights that arrive in it, in any order, and count with
    `weights` [f], and of those that are trained in it. `local_work` is that of the sites that were chosen."""
    sites, order = times.flights.site, _arrivals(times)
    chained = hashlib.blake2b(bytes.fromhex(key), digest_size=KEY_DIGITS // 2)
    chained.update(struct.pack("<qq", times.round, most := int(np.max(local_work))))
    chained.update(sites[order].astype("<i8").tobytes())
    chained.update(weights[order].astype("<f8").tobytes())
    if not np.array_equal(times.trained, times.arriving):  # as they are in synchronous rounds
        chained.update(times.age[order].astype("<i8").tobytes())
        chained.update(np.sort(sites[times.trained]).astype("<i8").tobytes())
    by_site = times.trained[np.argsort(sites[times.trained])]
    if ((work := times.flights.local_work[by_site]) != most).any():
        chained.update(work.astype("<i8").tobytes())
    return chained.hexdigest()


def _arrivals(times: RoundTimes) -> np.ndarray:
    """Positions of the flights that arrive in a round, by site."""
    arriving = times.arriving
    return arriving[np.lexsort((times.age[arriving], times.flights.site[arriving]))]


@dataclass(frozen=True, eq=False)
class CachedRound:
    """A round that was trained, with its row, of which only the results of training are used."""

    row: RoundRow
    params_digest: str
    """Digest of the model after the round; empty: not known."""

    def outcome(self, draft: Draft, evaluated: bool) -> Outcome:
        """The outcome of a round with the same key, in the order of its cohort; `evaluated` says whether its model is
        evaluated in it."""
        k, arriving, at = len(draft.cohort), _arrivals(draft.times), _arrivals(RoundTimes.recorded(self.row))
        recorded, diverged = Outcome.recorded(self.row), np.zeros(k, dtype=bool)
        reports = {name: np.full(k, math.nan) for name in SITE_REPORTS}
        diverged[arriving] = recorded.diverged[at]
        for name, values in reports.items():
            values[arriving] = getattr(recorded, name)[at]
        evaluation = {} if evaluated else {"eval_correct": 0, "eval_seen": 0, "eval_loss": math.nan}
        return replace(
            recorded, diverged=diverged, **reports, train_wall_s=np.zeros(k), measured=_NO_TIME, **evaluation
        )


_HINT = "remove it: it will be made again"
_ROUND_FILE = Container(b"HPCROUN\x03", "trajectory's round", _HINT)
_STATE_FILE = Container(b"HPCSTAT\x01", "trajectory's model", _HINT)


class KeyLocks:
    """Locks named by keys (hexadecimal digits), each held by one process at a time: single bytes of one lock file (open
    file description locks of Linux). The kernel releases a lock when its process ends, whatever ends it."""

    def __init__(self, path: str | Path):
        """`path` is the lock file; it is made when the first lock is taken."""
        self._path, self._number = Path(path), -1
        self.trouble = ""
        """The reason why locks do not exclude other processes here; empty: they do."""

    def take(self, key: str) -> bool:
        """Take a lock without waiting; returns whether it was free. On a file system without locks every lock is free,
        and `trouble` says so. Raises as `replace_file` where the lock file cannot be made."""
        try:
            if self._number < 0 or not is_at(self._number, self._path):
                self.close()  # the folder was removed, and the locks with it
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            return self._set(key, fcntl.F_WRLCK)
        except OSError as error:
            raise unwritable(self._path, error) from error

    def give_back(self, key: str) -> None:
        """Release a lock; nothing happens where it is not held."""
        if self._number >= 0:
            with suppress(OSError):
                self._set(key, fcntl.F_UNLCK)

    def close(self) -> None:
        """Release every lock."""
        if self._number >= 0:
            os.close(self._number)
            self._number = -1

    def _set(self, key: str, kind: int) -> bool:
        lock = _FLOCK.pack(kind, os.SEEK_SET, int(key[:_LOCK_DIGITS], 16), 1, 0)
        try:
            fcntl.fcntl(self._number, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            self.trouble = f"{self._path.parent} cannot lock files ({error.strerror})"
        return True


class CacheFiles:
    """The files in one folder, whose size is kept within a bound: the least recently used models are removed first,
    then rounds. A round spares every run on its path from training it, while a missing model costs only the rounds
    since the model before it."""

    def __init__(self, folder: str | Path, say: Callable[[str], None], most_bytes: float = math.inf):
        """`say` gets a warning for each damaged file, once; `most_bytes` is the bound."""
        self.folder, self._say, self._most_bytes = Path(folder), say, most_bytes
        self._reported: set[Path] = set()
        self._unchecked_bytes = math.inf
        """Bytes that this process has written since it last checked the size of the folder; inf: not checked yet."""
        self.locks = KeyLocks(self.folder / LOCKS)

    def round(self, key: str) -> CachedRound | None:
        """The round of this key; None where there is no file, or a damaged one."""
        if (content := self._read(key, ROUND, _ROUND_FILE)) is None:
            return None
        header, arrays = content
        (row,) = history_of(arrays).rows
        return CachedRound(row, header["params_digest"])

    def model(self, key: str) -> Model | None:
        """The model after the round of this key; None as for `round`."""
        content = self._read(key, STATE, _STATE_FILE)
        return content and Model.of(content[1])

    def has_model(self, key: str) -> bool:
        """Whether there is a file for the model after the round of this key."""
        return self._path(key, STATE).exists()

    def write_round(self, key: str, cached: CachedRound) -> None:
        """Write a round. Raises as `replace_file`."""
        arrays = history_arrays(History((replace(cached.row, candidates=None),)))
        header = {"key": key, "params_digest": cached.params_digest}
        self._write(self._path(key, ROUND), b"".join(_ROUND_FILE.pack(header, arrays)))

    def write_model(self, key: str, model: Model) -> None:
        """Write the model after the round of this key. Raises as `replace_file`."""
        self._write(self._path(key, STATE), b"".join(_STATE_FILE.pack({"key": key}, model.arrays())))

    def make_room(self) -> None:
        """Remove files where the folder is too large. The size is checked at first and then after every LOOK_EVERY."""
        if self._unchecked_bytes >= LOOK_EVERY * self._most_bytes:
            self._unchecked_bytes = 0
            shrink(self.folder, self._most_bytes)

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{suffix}"

    def _write(self, path: Path, data: bytes) -> None:
        replace_file(path, data, durable=False)
        self._unchecked_bytes += len(data)
        self.make_room()

    def _read(self, key: str, suffix: str, kind: Container) -> tuple[dict[str, Any], Arrays] | None:
        """Header and arrays of a file; its time of last use is now."""
        path = self._path(key, suffix)
        try:
            content = kind.unpack(read_file(path), str(path))
            if (stored := content[0]["key"]) != key:
                raise InputError(str(path), f"is that of the key {stored}")
        except InputError as error:
            # otherwise there is none, or it was removed meanwhile
            if path.exists() and path not in self._reported:
                self._reported.add(path)
                self._say(f"warning: {path} {error.faults[0].problem}: what it should hold is trained again")
            return None
        with suppress(OSError):
            os.utime(path)
        return content


def shrink(folder: Path, most_bytes: float) -> None:
    """Remove files until the folder is within its bound; files that hpctrip did not name stay. Processes that do so at
    the same time remove the same files."""
    files = []  # (is a round, time of last use, bytes, path): in the order of removal
    long_ago_s = time.time() - LEFTOVER_S
    for name in glob.glob("[0-9a-f][0-9a-f]/*", root_dir=folder):
        path = folder / name
        if not (own := _OWN.fullmatch(path.name)):
            continue
        with suppress(OSError):  # removed meanwhile
            entry = path.lstat()
            if not own[2]:
                files.append((own[1] == ROUND, entry.st_mtime, entry.st_size, path))
            elif entry.st_mtime < long_ago_s:
                path.unlink()
    total = sum(num_bytes for _, _, num_bytes, _ in files)
    enough = total if total <= most_bytes else LEFT * most_bytes
    for _, _, num_bytes, path in sorted(files):
        if total <= enough:
            break
        with suppress(OSError):
            path.unlink()
        total -= num_bytes
