"""Trajectories that are kept: what training contributed to rounds, whoever asked for them, and models to go on from.

Learning is a pure function of what training sees and of the cohorts so far, so a round is known by a key that is
chained over them (`key_after`): rounds with one beginning share it, and the keys form a tree. A round is one small file
under its key, a model one other beside it (both record/container.py):

    FOLDER/ab/cdef....round     a `Node`: what an outcome is made of
    FOLDER/ab/cdef....state     a `Kept`: what a checkpoint has, without the history
    FOLDER/locks                who trains what now (runner/cache/key_locks.py)

Every file is written aside and renamed, and may be removed at any time: what is missing, damaged or foreign is trained
again. So the folder can be shared by any number of processes, which may be killed at any moment.
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
"""Wall time of a round that was taken, not trained: it cost none."""


def key_after(key: str, round: int, sites: np.ndarray, weights: np.ndarray, local_work: int = 1) -> str:
    """The key of a round that follows the one of `key`: the updates of `sites` [m] arrived, in whatever order, and
    counted with `weights` [m]; every site trained `local_work` times what [train] says."""
    order = np.argsort(sites)
    chained = hashlib.blake2b(bytes.fromhex(key), digest_size=KEY_DIGITS // 2)
    chained.update(struct.pack("<qq", round, local_work))
    chained.update(sites[order].astype("<i8").tobytes())
    chained.update(weights[order].astype("<f8").tobytes())
    return chained.hexdigest()


@dataclass(frozen=True, eq=False)
class Node:
    """What training contributed to one round. Arrays [m] over the sites whose updates arrived, sorted by site: nothing
    that the simulated world made of it."""

    key: str
    round: int
    site: np.ndarray
    diverged: np.ndarray
    told: Mapping[str, np.ndarray]
    """What training told of every site: `SITE_REPORTS`, by name."""
    mean_update_norm: float
    update_norm: float
    params_digest: str
    """Of the model after the round; empty: not known."""
    eval_correct: int = 0
    eval_seen: int = 0
    """0: the model was not evaluated."""
    eval_loss: float = math.nan

    @classmethod
    def of(cls, key: str, row: RoundRow, params_digest: str) -> Self:
        """That of a finished round."""
        cohort = row.cohort
        arrived = np.flatnonzero(came_back(cohort.status))
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
        """Of a round with this key, whether or not its model is `evaluated` in it."""
        k, arriving = len(draft.cohort), draft.arriving
        at = np.searchsorted(self.site, draft.cohort[arriving])
        diverged, told = np.zeros(k, dtype=bool), {name: np.full(k, math.nan) for name in self.told}
        diverged[arriving] = self.diverged[at]
        for name, values in self.told.items():
            told[name][arriving] = values[at]
        return Outcome(
            diverged=diverged,
            **told,
            train_wall_s=np.zeros(k),
            mean_update_norm=self.mean_update_norm,
            update_norm=self.update_norm,
            eval_correct=self.eval_correct if evaluated else 0,
            eval_seen=self.eval_seen if evaluated else 0,
            eval_loss=self.eval_loss if evaluated else math.nan,
            wall=_NOTHING_MEASURED,
        )


def came_back(status: np.ndarray) -> np.ndarray:
    """Whose updates arrived, [k] bool, of what became of every site's: a diverged one did."""
    return (status == Status.ARRIVED) | (status == Status.DIVERGED)


@dataclass(frozen=True, eq=False)
class Kept:
    """A model after a round, with all that is needed to train on (see `Checkpoint`)."""

    key: str
    params: np.ndarray
    slots: np.ndarray
    kept: Mapping[int, np.ndarray] = field(default_factory=dict)


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


_ELSEWHERE = "remove it: it will be made again"
_ROUND_FILE = Container(b"HPCROUN\x02", _RoundHeader, "trajectory's round", _ELSEWHERE)
_STATE_FILE = Container(b"HPCSTAT\x01", _StateHeader, "trajectory's model", _ELSEWHERE)


class TrajectoryFiles:
    """The files of one folder. `say` is told of each damaged one, once."""

    def __init__(self, folder: str | Path, say: Callable[[str], None]):
        self.folder, self._say = Path(folder), say
        self._said: set[Path] = set()
        self.locks = KeyLocks(self.folder / LOCKS)
        self.written_bytes = 0
        """By this process so far."""

    def node(self, key: str, sites: np.ndarray) -> Node | None:
        """The round of this key, to which the updates of `sites` [m] arrived; None where it is not known, or its file
        is damaged or foreign."""

        def parse(header: _RoundHeader, arrays: dict[str, dict[str, np.ndarray]]) -> Node:
            _same_key(header.key, key)
            columns = arrays[""]
            site, diverged = columns["site"], columns["diverged"]
            told = {name: columns[name] for name in SITE_REPORTS}
            found = [site, diverged, *told.values()]
            if (
                [values.dtype.str for values in found] != ["<i8", "<i8"] + ["<f8"] * len(told)
                or {values.shape for values in found} != {site.shape}
                or not np.array_equal(site, np.sort(sites))
            ):
                raise ValueError("its columns are not those of the round")
            said = header.model_dump(exclude={"arrays", "eval_loss"})
            eval_loss = math.nan if header.eval_loss is None else header.eval_loss
            return Node(site=site, diverged=diverged != 0, told=told, eval_loss=eval_loss, **said)

        return self._read(self._path(key, ROUND), _ROUND_FILE, parse)

    def state(self, key: str) -> Kept | None:
        """The model after the round of this key; None as in `node`."""

        def parse(header: _StateHeader, arrays: dict[str, dict[str, np.ndarray]]) -> Kept:
            _same_key(header.key, key)
            return Kept(key, *model_of(arrays))

        return self._read(self._path(key, STATE), _STATE_FILE, parse)

    def has_state(self, key: str) -> bool:
        """Is there a file that should hold it?"""
        return self._path(key, STATE).exists()

    def put(self, node: Node) -> None:
        """Keep a round. Raises as `replace_file`."""
        said = {name: getattr(node, name) for name in _RoundHeader.model_fields if name != "arrays"}
        said["eval_loss"] = None if math.isnan(node.eval_loss) else node.eval_loss
        columns = {"site": node.site, "diverged": node.diverged.astype(np.int64), **node.told}
        self._write(self._path(node.key, ROUND), _ROUND_FILE.pack(said, columns))

    def keep(self, kept: Kept) -> None:
        """Keep a model. Raises as `replace_file`."""
        arrays = model_arrays(kept.params, kept.slots, kept.kept)
        self._write(self._path(kept.key, STATE), _STATE_FILE.pack({"key": kept.key}, arrays))

    def _path(self, key: str, suffix: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}{suffix}"

    def _write(self, path: Path, data: bytes) -> None:
        replace_file(path, data, durable=False)
        self.written_bytes += len(data)

    def _read(self, path: Path, sort: Container, parse: Callable) -> Node | Kept | None:
        """What a file holds, which counts as used now."""
        if not os.path.lexists(path):
            return None
        try:
            found = sort.unpack(read_file(path), str(path), parse)
        except InputError as error:
            if path.exists() and path not in self._said:  # else it was removed meanwhile
                self._said.add(path)
                self._say(f"warning: {path} {error.faults[0].problem}: what it should hold is trained again")
            return None
        with suppress(OSError):
            os.utime(path)
        return found


def _same_key(found: str, asked: str) -> None:
    if found != asked:
        raise ValueError(f"it is that of the key {found}")
