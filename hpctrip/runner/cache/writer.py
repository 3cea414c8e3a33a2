"""The settings of the cache, and the writer that puts the rounds of a run into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import Field

from hpctrip.base.errors import HpctripError
from hpctrip.base.io import PathName, check_writable
from hpctrip.base.units import GB
from hpctrip.config.component import Component
from hpctrip.record.checkpoint import Model
from hpctrip.runner.cache.trajectory import LOCKS, CachedRound, CacheFiles, key_after
from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.step import Draft, State


class CacheInput(Component):
    """A cache of trained rounds. A run with the same training and the same cohorts reuses cached rounds, bitwise,
    whatever its clock, network or power. No key here changes a result."""

    path: PathName | None = None
    """The folder of the cache. Several runs may share it simultaneously, and it may be removed at any time. Absent: no
    cache."""
    keep_every: int = Field(10, ge=1)
    """Rounds between two cached models. A run with partly cached rounds trains from the last cached model. A model
    includes the state of all sites (error feedback, kept optimisers)."""
    max_gb: float = Field(20.0, gt=0)
    """Largest size of the cache in GB. The least recently used models are removed first, then rounds."""

    def check(self) -> None:
        """Raise InputError where nothing can be written to the folder. Leaves no file behind."""
        if self.path is not None:
            check_writable(Path(self.path) / LOCKS, overwrite=True)

    def open(self, say: Callable[[str], None]) -> CacheFiles | None:
        """The files of the cache; None where there is none. Raises InputError where nothing can be written."""
        if self.path is None:
            return None
        self.check()
        files = CacheFiles(Path(self.path), say, self.max_gb * GB)
        files.make_room()
        return files


def round_key(draft: Draft, before: str) -> str:
    """The key of a round that follows the round of the key `before`."""
    return key_after(before, draft.times, draft.weights * draft.discounts, draft.decision.local_work)


class CacheWriter:
    """Writes the rounds of a run into the cache as they are trained. It stops after the first failure to write.

    This process holds the lock of a round (`CacheFiles.locks`) while it trains it, so that other runs which come to the
    same round wait for it. It takes the lock of the next round before it releases that of the last, so a run that
    waited finds the next round locked, too. A process never waits for a lock while holding one, so there is no
    deadlock; where another run has the next round's lock already, both train it.
    """

    def __init__(
        self,
        files: CacheFiles,
        keep_every: int,
        keys: list[str],
        retrained: Mapping[str, str],
        say: Callable[[str], None],
    ):
        """`keep_every` is the number of rounds between two models. `keys` are the keys after the rounds so far, from
        round 0 on. `retrained` are the digests of the models after the following rounds, by key: these are cached, but
        trained again to get to the first new round."""
        self._files, self._keep_every, self._say = files, keep_every, say
        self._keys, self._retrained = keys, retrained
        self._last_retrained = list(retrained)[-1] if retrained else ""
        self._works, self._differs = True, False

    def begin(self, draft: Draft) -> None:
        """Lock the round, which is trained next."""
        key = round_key(draft, self._keys[-1])
        self._keys.append(key)
        if key not in self._retrained:
            self._try(lambda: self._files.locks.take(key))

    def due(self, state: State, over: bool) -> bool:
        """Whether the model after `state` is to be written: after every `keep_every` rounds, at the end, and before the
        first new round, because the next run may leave the cached rounds at the same place."""
        key, regular = self._keys[state.round], state.round % self._keep_every == 0
        wanted = state.round > 0 and (over or regular or key == self._last_retrained)
        return self._works and wanted and not self._files.has_model(key)

    def save(self, state: State, model: Model) -> None:
        """Write the model."""
        self._try(lambda: self._files.write_model(self._keys[state.round], model))

    def finished(self, row: RoundRow, params_digest: str) -> None:
        """Write the round, after which the model has this digest, and release its lock."""
        key = self._keys[row.round]
        before = self._retrained.get(key)
        if before is None:
            self._try(lambda: self._files.write_round(key, CachedRound(row, params_digest)))
            self._files.locks.give_back(key)
        elif before != params_digest and not self._differs:
            self._differs = True
            self._say(
                f"warning: round {row.round}, trained again, differs from the cached one: training is not bitwise "
                "reproducible here"
            )

    def close(self) -> None:
        """Release every lock."""
        self._files.locks.close()

    @property
    def place(self) -> str:
        """The folder that holds the rounds of this run and its last model; empty after a failure to write."""
        return str(self._files.folder) if self._works else ""

    def _try(self, write: Callable[[], object]) -> None:
        """Write to the cache, unless that has failed before."""
        if not self._works:
            return
        try:
            write()
        except HpctripError as error:
            self._works = False
            self.close()
            self._say(f"warning: the cache is no longer filled: {error}")
