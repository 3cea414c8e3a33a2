"""Files of the cache: the results of training rounds, and models from which a run can go on.

Training is a pure function of its input and of the cohorts so far. So a round has a key, a hash chained over both
(`key_after`), and runs that begin alike share the keys of their first rounds. A round is one small file, named by its
key, and a model another beside it (both in the format of record/container.py):

    FOLDER/ab/cdef....round     a `CachedRound`
    FOLDER/ab/cdef....state     a `CachedModel`
    FOLDER/locks                locks on the rounds that are being trained (runner/cache/key_locks.py)

Every file is written to a temporary name and renamed, and may be removed at any time: a missing or damaged one is
trained again. So any number of processes can share the folder and be killed at any moment.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_file, replace_file
from hpctrip.record.checkpoint import model_arrays, model_of
from hpctrip.record.container import Container, Header
from hpctrip.runner.cache.key_locks import KeyLocks
from hpctrip.sim.outcome import SITE_REPORTS, Outcome, Wall
from hpctrip.sim.rounds import RoundRow, Status
from hpctrip.sim.step import Draft

KEY_DIGITS = 32
ROUND, STATE = ".round", ".state"
LOCKS = "locks"
_NOTHING_MEASURED = Wall(*[0.0] * 6)
"""Wall times and joules of a round that was taken from the cache."""


def key_after(key: str, round: int, sites: np.ndarray, weights: np.ndarray, local_work: int = 1) -> str:
    """The key of the round after the round of `key`, in which the updates of `sites` [m] arrived, in any order, and
    counted with `weights` [m]; every site trained `local_work` times what [train] says."""
    order = np.argsort(sites)
    chained = hashlib.blake2b(bytes.fromhex(key), digest_size=KEY_DIGITS // 2)
    chained.update(struct.pack("<qq", round, local_work))
    chained.update(sites[order].astype("<i8").tobytes())
    chained.update(weights[order].astype("<f8").tobytes())
    return chained.hexdigest()


@dataclass(frozen=True, eq=False)
class CachedRound:
    """The results of training one round, without those of the simulated world. Arrays [m] are over the sites whose
    updates arrived, sorted by site."""

    key: str
    round: int
    site: np.ndarray
    diverged: np.ndarray
    reports: Mapping[str, np.ndarray]
    """Numbers that training reports for every site: `SITE_REPORTS`, by name."""
    mean_update_norm: float
    update_norm: float
    params_digest: str
    """Digest of the model after the round; empty: not known."""
    eval_correct: int = 0
    eval_seen: int = 0
    """0: the model was not evaluated."""
    eval_loss: float = math.nan

    @classmethod
    def of(cls, key: str, row: RoundRow, params_digest: str) -> Self:
        """The cached form of a finished round."""
        cohort = row.cohort
        arrived = np.flatnonzero(arrived_mask(cohort.status))
        arrived = arrived[np.argsort(cohort.site[arrived])]
        return cls(
            key,
            row.round,
            cohort.site[arrived],
            cohort.status[arrived] == Status.DIVERGED,
            {name: getattr(cohort, column)[arrived] for name, column in SITE_REPORTS.items()},
            row.mean_update_norm,
            row.update_norm,
            params_digest,
            row.eval_correct,
            row.eval_seen,
            row.eval_loss,
        )

    def outcome(self, draft: Draft, evaluated: bool) -> Outcome:
        """The outcome of a round with this key; `evaluated` says whether its model is evaluated in it."""
        k, arriving = len(draft.cohort), draft.arriving
        at = np.searchsorted(self.site, draft.cohort[arriving])
        diverged, reports = np.zeros(k, dtype=bool), {name: np.full(k, math.nan) for name in self.reports}
        diverged[arriving] = self.diverged[at]
        for name, values in self.reports.items():
            reports[name][arriving] = values[at]
        return Outcome(
            diverged=diverged,
            **reports,
            train_wall_s=np.zeros(k),
            mean_update_norm=self.mean_update_norm,
            update_norm=self.update_norm,
            eval_correct=self.eval_correct if evaluated else 0,
            eval_seen=self.eval_seen if evaluated else 0,
            eval_loss=self.eval_loss if evaluated else math.nan,
            wall=_NOTHING_MEASURED,
        )


def arrived_mask(status: np.ndarray) -> np.ndarray:
    """Whether each site's update arrived, [k] bool, from the status of each. A diverged update did arrive."""
    return (status == Status.ARRIVED) | (status == Status.DIVERGED)


@dataclass(frozen=True, eq=False)
class CachedModel:
    """The model after a round, with the state that training on needs (see `Checkpoint`)."""

    key: str
    params: np.ndarray
    slots: np.ndarray
    site_states: Mapping[int, np.ndarray] = field(default_factory=dict)


class _RoundHeader(Header):
    key: str
    round: int = Field(ge=1, lt=2**63)
    params_digest: str
    mean_update_norm: float = Field(ge=0)
    update_norm: float = Field(ge=0)
    eval_correct: int = Field(ge=0, lt=2**63)
    eval_seen: int = Field(ge=0, lt=2**63)
    eval_loss: float | None


class _StateHeader(Header):
    key: str


_HINT = "remove it: it will be made again"
_ROUND_FILE = Container(b"HPCROUN\x02", _RoundHeader, "trajectory's round", _HINT)
_STATE_FILE = Container(b"HPCSTAT\x01", _StateHeader, "trajectory's model", _HINT)


class CacheFiles:
    """The files in one folder. `say` gets a warning for each damaged file, once."""

    def __init__(self, folder: str | Path, say: Callable[[str], None]):
        self.folder, self._say = Path(folder), say
        self._reported: set[Path] = set()
        self.locks = KeyLocks(self.folder / LOCKS)
        self.written_bytes = 0
        """Bytes that this process has written so far."""

    def round(self, key: str, sites: np.ndarray) -> CachedRound | None:
        """The round of this key, in which the updates of `sites` [m] arrived; None where there is no file, or a damaged
        one."""

        def parse(header: _RoundHeader, arrays: dict[str, dict[str, np.ndarray]]) -> CachedRound:
            _same_key(header.key, key)
            columns = arrays[""]
            site, diverged = columns["site"], columns["diverged"]
            reports = {name: columns[name] for name in SITE_REPORTS}
            stored = [site, diverged, *reports.values()]
            if (
                [values.dtype.str for values in stored] != ["<i8", "<i8"] + ["<f8"] * len(reports)
                or {values.shape for values in stored} != {site.shape}
                or not np.array_equal(site, np.sort(sites))
            ):
                raise ValueError("its columns are not those of the round")
            numbers = header.model_dump(exclude={"arrays", "eval_loss"})
            eval_loss = math.nan if header.eval_loss is None else header.eval_loss
            return CachedRound(
                site=site, diverged=diverged != 0, reports=reports, eval_loss=eval_loss, **numbers
            )

        return self._read(self._path(key, ROUND), _ROUND_FILE, parse)

    def model(self, key: str) -> CachedModel | None:
        """The model after the round of this key; None as for `round`."""

        def parse(header: _StateHeader, arrays: dict[str, dict[str, np.ndarray]]) -> CachedModel:
            _same_key(header.key, key)
            return CachedModel(key, *model_of(arrays))

        return self._read(self._path(key, STATE), _STATE_FILE, parse)

    def has_model(self, key: str) -> bool:
        """Whether there is a file for the model after the round of this key."""
        return self._path(key, STATE).exists()

    def write_round(self, cached: CachedRound) -> None:
        """Write a round. Raises as `replace_file`."""
        header = {name: getattr(cached, name) for name in _RoundHeader.model_fields if name != "arrays"}
        header["eval_loss"] = None if math.isnan(cached.eval_loss) else cached.eval_loss
        columns = {"site": cached.site, "diverged": cached.diverged.astype(np.int64), **cached.reports}
        self._write(self._path(cached.key, ROUND), _ROUND_FILE.pack(header, columns))

    def write_model(self, model: CachedModel) -> None:
        """Write a model. Raises as `replace_file`."""
        arrays = model_arrays(model.params, model.slots, model.site_states)
        self._write(self._path(model.key, STATE), _STATE_FILE.pack({"key": model.key}, arrays))

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{suffix}"

    def _write(self, path: Path, data: bytes) -> None:
        replace_file(path, data, durable=False)
        self.written_bytes += len(data)

    def _read(self, path: Path, kind: Container, parse: Callable) -> CachedRound | CachedModel | None:
        """The content of a file; its time of last use is now."""
        if not os.path.lexists(path):
            return None
        try:
            content = kind.unpack(read_file(path), str(path), parse)
        except InputError as error:
            if path.exists() and path not in self._reported:  # else it was removed meanwhile
                self._reported.add(path)
                self._say(f"warning: {path} {error.faults[0].problem}: what it should hold is trained again")
            return None
        with suppress(OSError):
            os.utime(path)
        return content


def _same_key(stored: str, key: str) -> None:
    if stored != key:
        raise ValueError(f"it is that of the key {stored}")
