"""The store of trajectories: where it is, and how what a run trains gets there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from pydantic import Field

from hpctrip.base.errors import HpctripError
from hpctrip.base.io import PathName, check_writable
from hpctrip.base.units import GB
from hpctrip.config.component import Component
from hpctrip.learn.params import digest
from hpctrip.runner.cache.eviction import Bound
from hpctrip.runner.cache.trajectory import LOCKS, Kept, Node, TrajectoryFiles, key_after
from hpctrip.sim.rounds import RoundRow
from hpctrip.sim.step import Draft, State


class Storing(Component):
    """Rounds that were trained before are taken from a store, bit for bit, by every run that learns the same and
    chooses the same cohorts, whatever its clock, network or power; nothing here changes a result."""

    path: PathName | None = None
    """The folder of the store, which any number of runs may share at the same time and which may be removed at any
    time. Who can write there can change results: share it with nobody whom you would not let write your results files.
    Absent: none."""
    keep_every: int = Field(10, ge=1)
    """Rounds between two models that are kept: a run that parts from what is known trains again from the last one. A
    model has what all sites keep (error feedback, kept optimisers), too."""
    max_gb: float = Field(20.0, gt=0)
    """The store's size, in GB: models that were used longest ago are removed first, then rounds."""

    def check(self) -> None:
        """Raises InputError where nothing could be written there. Leaves nothing behind."""
        if self.path is not None:
            check_writable(Path(self.path).expanduser() / LOCKS, overwrite=True)

    def open(self, say: Callable[[str], None]) -> TrajectoryFiles | None:
        """Its files; None where there is no store. Raises InputError where nothing can be written there."""
        if self.path is None:
            return None
        self.check()
        files = TrajectoryFiles(Path(self.path).expanduser(), say)
        Bound(files, self.max_gb * GB).keep()
        return files


def key_of(draft: Draft, before: str) -> str:
    """The key of a round, which follows the round of the key `before`."""
    arriving = draft.arriving
    return key_after(before, draft.round, draft.cohort[arriving], draft.weights[arriving], draft.local_work)


class NoStore:
    """What a run does that has no store: nothing."""

    def begin(self, draft: Draft) -> None:
        """This round is trained next."""

    def due(self, state: State, over: bool) -> bool:
        """Should the model after `state` be kept?"""
        return False

    def save(
        self, state: State, params: torch.Tensor, slots: torch.Tensor, kept: Mapping[int, torch.Tensor]
    ) -> None:
        """Keep the model after `state`, with what a checkpoint has besides."""

    def finished(self, row: RoundRow, params: torch.Tensor) -> None:
        """A round was trained, after which the model is `params` [P]."""

    def close(self) -> None:
        """The run is over."""


class Filler(NoStore):
    """Gives the store what a run trains, round by round, as the recorder gets it. A store that cannot be written any
    more is left alone.

    While a round is trained this process has the right to it (`TrajectoryFiles.locks`), so that runs that come to the
    same round wait for it instead of training it too. The right to the next round is taken before one is handed over:
    whoever waited for that finds the next one taken. Nobody waits who has such a right, so nobody waits in a circle;
    where the next round turns out to be another run's already, both train it.
    """

    def __init__(
        self,
        files: TrajectoryFiles,
        rules: Storing,
        keys: list[str],
        known: Mapping[str, str],
        say: Callable[[str], None],
    ):
        """`keys` are those of the rounds so far, from round 0 on; `known` are the digests of the models after the
        rounds beyond that the store has, by key: these are trained again, to get to where something new begins."""
        self._files, self._rules, self._say = files, rules, say
        self._keys, self._known = keys, known
        self._last_known = list(known)[-1] if known else ""
        self._bound = Bound(files, rules.max_gb * GB)
        self._works, self._differs = True, False

    def begin(self, draft: Draft) -> None:
        """Take the right to this round, which is trained next."""
        key = key_of(draft, self._keys[-1])
        self._keys.append(key)
        if key not in self._known:
            self._try(lambda: self._files.locks.take(key))

    def due(self, state: State, over: bool) -> bool:
        """Should the model after `state` be kept? After every so many rounds, at the end, and where something new
        begins: the next run may well part from what is known in the same place."""
        key, regular = self._keys[state.round], state.round % self._rules.keep_every == 0
        wanted = state.round > 0 and (over or regular or key == self._last_known)
        return self._works and wanted and not self._files.has_state(key)

    def save(
        self, state: State, params: torch.Tensor, slots: torch.Tensor, kept: Mapping[int, torch.Tensor]
    ) -> None:
        """Keep the model."""
        model = Kept(
            self._keys[state.round],
            params.cpu().numpy(),
            slots.cpu().numpy(),
            {site: row.cpu().numpy() for site, row in kept.items()},
        )
        self._try(lambda: self._files.keep(model))

    def finished(self, row: RoundRow, params: torch.Tensor) -> None:
        """Hand the round over, with the right to it."""
        key, found = self._keys[row.round], digest(params)
        before = self._known.get(key)
        if before is None:
            self._try(lambda: self._files.put(Node.of(key, row, found)))
            self._files.locks.give_back(key)
        elif before != found and not self._differs:
            self._differs = True
            self._say(
                f"warning: round {row.round}, trained again, gave other bits than those in the store: "
                "training does not repeat itself here"
            )

    def close(self) -> None:
        """Give back every right."""
        self._files.locks.close()

    def _try(self, write: Callable[[], object]) -> None:
        """Write to the store, as long as that works."""
        if not self._works:
            return
        try:
            write()
            self._bound.keep()
        except HpctripError as error:
            self._works = False
            self.close()
            self._say(f"warning: the store is not filled any more: {error}")
