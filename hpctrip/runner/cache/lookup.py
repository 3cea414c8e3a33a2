"""How far a run is known already: rounds are taken as long as somebody has trained the same, then the run goes on from
the last model that is kept, as from a checkpoint.

Rounds between that model and the first one that is new are trained again, to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hpctrip.base.errors import InputError
from hpctrip.ranks.phase import current_phase
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.reader import Run
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.cache.trajectory import Kept, Node, TrajectoryFiles
from hpctrip.runner.cache.walk import Find, Path, nodes, trail, usable, walk
from hpctrip.runner.cache.writer import Filler, NoStore
from hpctrip.runner.resume import Model, Start, fitting, state_of
from hpctrip.sim.step import Draft, State

LOOK_S = 0.01, 0.5
"""Between two looks at a round that another run trains: at first, and at most."""


@dataclass(frozen=True, eq=False)
class Followed:
    """Where a run goes on, and what becomes of what it trains."""

    state: State
    model: Model | None
    """The model after `state`; None: the initial one, or none is needed."""
    params_digest: str | None = None
    """Of the model after `state`, where nobody needs the model itself; None: it is here."""
    filler: NoStore = field(default_factory=NoStore)
    notes: tuple[str, ...] = ()
    """What to tell the user."""


@dataclass(frozen=True)
class Follower:
    """Follows what is known for one run, at rank 0."""

    aggregator: Aggregator
    start: Start
    learning_key: str
    leaves: Callable[[State], object]
    """Is the run asked to leave?"""
    say: Callable[[str], None]
    """Told what cannot wait for the notes."""

    def follow(self) -> Followed:
        """Take what is known, and the right to train what comes next. Raises InputError where the store cannot be
        used, and as rounds do."""
        experiment, saved, known = self.aggregator.experiment, self.start.checkpoint, self.start.known
        state = State() if saved is None else state_of(saved, experiment)
        state = self.aggregator.simulation.judged(state)
        begun = Followed(state, saved)
        if experiment.store.path is None and known is None:
            return begun
        if why := self._why_not():
            return Followed(state, saved, notes=(f"note: {why}",))
        path = Path(state, trail(self.learning_key, self.aggregator.simulation, state.history), [])
        if known is not None and (whole := self._whole(self._walk(path, self._recorded(known)))):
            return whole
        files = experiment.store.open(self.say)
        if files is None:
            return begun
        try:
            return self._with_store(files, path, saved)
        except BaseException:
            files.locks.close()
            raise

    def _why_not(self) -> str:
        """Why nothing is taken and nothing kept; empty: it is."""
        saved = self.start.checkpoint
        if self.aggregator.experiment.timing.compute == "measured":
            return 'timing.compute = "measured": rounds depend on how long they take here, so all are trained'
        if saved is not None and saved.about.get("learning_key") != self.learning_key:
            return (
                "the store is not used: the rounds so far were trained with another hpctrip or torch, or on another "
                "machine, so that their last bits may differ"
            )
        return ""

    def _walk(self, path: Path, find: Find) -> Path:
        """As far as rounds are found."""
        return walk(path, self.aggregator.experiment, self.aggregator.simulation, find)

    def _recorded(self, known: Run) -> Find:
        """Finds the rounds of a results file, which knows the last model's digest alone."""
        if known.meta["learning_key"] != self.learning_key:
            self.say(
                f"warning: {known.path} was trained with another hpctrip or torch, or on another machine: rounds that "
                "are trained here may differ from its own in their last bits"
            )
        history = known.history()
        found = nodes(self.learning_key, self.aggregator.simulation, history)
        if found:
            last = list(found)[-1]
            found[last] = replace(found[last], params_digest=known.meta["params_digest"])
        return lambda draft, key, evaluated: usable(found.get(key), evaluated)

    def _whole(self, path: Path) -> Followed | None:
        """The run that ends with this path, where it does and only its model is missing, which nobody asks for."""
        over = path.digests and path.state.stop_reason
        if not over or self.aggregator.experiment.checkpoint.enabled:
            return None
        taken, last = len(path.digests), path.state.round
        return Followed(
            path.state,
            None,
            params_digest=path.digests[-1],
            notes=(f"nothing is trained: {_span(last - taken, last)} known already",),
        )

    def _with_store(self, files: TrajectoryFiles, path: Path, saved: Checkpoint | None) -> Followed:
        first, rules = path.state.round, self.aggregator.experiment.store
        path = self._walk(path, self._stored(files))
        if whole := self._whole(path):
            files.locks.close()
            return whole
        last = path.state.round
        kept = ((round, self._kept(files, path.keys[round])) for round in range(last, first, -1))
        round, model = next(((round, model) for round, model in kept if model), (first, saved))
        known = dict(zip(path.keys[round + 1 :], path.digests[round - first :], strict=True))
        notes = []
        if last > first:
            again = f"; trained again for the model: {_span(round, last)}" if last > round else ""
            notes.append(f"taken from {files.folder}: {_span(first, round)}{again}")
        if files.locks.trouble:
            notes.append(f"warning: {files.locks.trouble}: runs side by side may train the same rounds")
        filler = Filler(files, rules, path.keys[: round + 1], known, self.say)
        return Followed(path.cut(round), model, filler=filler, notes=tuple(notes))

    def _stored(self, files: TrajectoryFiles) -> Find:
        """Finds the rounds of the store. One that is missing is this run's to train, unless another run is at it: then
        that is waited for."""
        is_told = False

        def find(draft: Draft, key: str, evaluated: bool) -> Node | None:
            nonlocal is_told
            sites, is_mine, wait = draft.cohort[draft.arriving], False, _Wait(draft.round)
            while (node := usable(files.node(key, sites), evaluated)) is None:
                if is_mine:
                    return None
                is_mine = files.locks.take(key)  # and look again: it may have come meanwhile
                if not is_mine:
                    if self.leaves(draft.before):
                        return None
                    if not is_told:
                        self.say(f"waiting for round {draft.round}, which another run trains")
                    is_told = True
                    wait.a_little()
            files.locks.give_back(key)
            return node

        return find

    def _kept(self, files: TrajectoryFiles, key: str) -> Kept | None:
        """The model after the round of this key, where it is kept and is one of this run's."""
        model = files.state(key)
        if model is not None:
            try:
                fitting(self.aggregator.host, model, str(files.folder))
            except InputError as error:
                self.say(f"warning: {error.faults[0]}")
                return None
        return model


class _Wait:
    """For a round that another run trains."""

    def __init__(self, round: int):
        self._round, self._pause_s = round, LOOK_S[0]

    def a_little(self) -> None:
        """Until it is time to look again. The watchdog hears each time that this rank is alive: another run's round may
        take as long as that run's own limits allow."""
        current_phase.enter("store", self._round)
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LOOK_S[1])


def _span(after: int, last: int) -> str:
    """The rounds after one and up to another, in words."""
    if last - after < 2:
        return f"round {last}" if last > after else "no round"
    return f"rounds {after + 1} to {last}"
