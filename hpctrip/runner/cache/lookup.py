"""Looks up rounds in the cache so that a run need not train them again.

A run takes the rounds that were trained before, by itself or by others, and goes on from the last cached model among
them as from a checkpoint. Rounds between that model and the first new one are trained again, to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hpctrip.record.checkpoint import Checkpoint, Model
from hpctrip.record.reader import Run
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.cache.trajectory import (
    CachedRound,
    CacheFiles,
    key_after,
)
from hpctrip.runner.cache.writer import CacheWriter, round_key
from hpctrip.runner.experiment import Experiment
from hpctrip.runner.loop import ResumePoint
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Draft, Simulation, State

POLL_S = 0.01, 0.5
"""First and longest pause between two lookups of a round that another run is training."""

FindRound = Callable[[Draft, str, bool], CachedRound | None]
"""(a round that has begun, its key, whether its model is evaluated) -> the cached round; None: not found."""


@dataclass(frozen=True)
class KeyedRounds:
    """The rounds of a run so far, with their keys."""

    state: State
    keys: list[str]
    """The key after every round, from round 0 on."""
    digests: list[str]
    """Digests of the models after the last rounds, those that were found in the cache."""

    def state_after(self, round: int) -> State:
        """The state after an earlier round."""
        if round == self.state.round:
            return self.state
        rows = self.state.history.rows[:round]
        return State(round, rows[-1].clock_s, History(rows)) if rows else State()

    def extended(self, experiment: Experiment, simulation: Simulation, find: FindRound) -> KeyedRounds:
        """These rounds and those after them, as far as they are found. `simulation` is that of `experiment`."""
        state, keys, digests = self.state, [*self.keys], []
        while not state.stop_reason:
            draft = simulation.begin(state)
            key = round_key(draft, keys[-1])
            evaluated = experiment.evaluate.due(draft.round, experiment.stop.max_rounds)
            cached = find(draft, key, evaluated)
            if cached is None:
                break
            state, _ = simulation.finish(draft, cached.outcome(draft, evaluated))
            keys.append(key)
            digests.append(cached.params_digest)
        return KeyedRounds(state, keys, digests)


def key_chain(key: str, simulation: Simulation, history: History) -> list[str]:
    """The keys after round 0, which is `key`, and after every round of a history."""
    keys = [key]
    for row in history.rows:
        times = RoundTimes.recorded(row)
        weights = simulation.weights(times.flights, times.flights.status)
        keys.append(
            key_after(keys[-1], times, weights * simulation.rounds.discounts(times.age), row.local_work)
        )
    return keys


def usable(cached: CachedRound | None, evaluated: bool) -> CachedRound | None:
    """The cached round, unless its model was not evaluated and has to be."""
    return cached if cached is not None and (cached.row.eval_seen or not evaluated) else None


@dataclass(frozen=True)
class CacheLookup:
    """Finds the resume point of one run, at rank 0."""

    aggregator: Aggregator
    learning_key: str
    checkpoint: Checkpoint | None
    """The checkpoint from which the run goes on, if any."""
    earlier_run: Run | None
    """A finished run with the same training input, if any."""
    leaves: Callable[[State], object]
    """Whether the run is asked to leave (a true value)."""
    say: Callable[[str], None]
    """Prints a line at once; all others are notes of the resume point."""

    def after(self, uncached: ResumePoint) -> ResumePoint:
        """The resume point after all cached rounds that follow `uncached`, with the lock on the first that is to be
        trained. Raises InputError where the cache cannot be used, and as rounds do."""
        experiment, simulation, run = self.aggregator.experiment, self.aggregator.simulation, self.earlier_run
        state = uncached.state
        if reason := self._why_not():
            return replace(uncached, notes=(f"note: {reason}",))
        rounds = KeyedRounds(state, key_chain(self.learning_key, simulation, state.history), [])
        if run is not None:
            finished = self._finished(rounds.extended(experiment, simulation, self._find_in_results(run)))
            if finished:
                return finished
        files = experiment.store.open(self.say)
        if files is None:
            return uncached
        try:
            return self._look_up(files, rounds, uncached.model)
        except BaseException:
            files.locks.close()
            raise

    def _why_not(self) -> str:
        """The reason why the cache is not used for this run; empty: it is used."""
        if self.aggregator.experiment.timing.compute == "measured":
            return 'timing.compute = "measured": rounds depend on how long they take here, so all are trained'
        if self.checkpoint and self.checkpoint.metadata.get("learning_key") != self.learning_key:
            return (
                "the cache is not used: the rounds so far were trained with another hpctrip or torch, or on another "
                "machine, so that their last bits may differ"
            )
        return ""

    def _find_in_results(self, run: Run) -> FindRound:
        """Looks rounds up in a results file."""
        if run.meta["learning_key"] != self.learning_key:
            self.say(
                f"warning: {run.path} was trained with another hpctrip or torch, or on another machine: rounds that "
                "are trained here may differ from its own in their last bits"
            )
        history = run.history()
        keys = key_chain(self.learning_key, self.aggregator.simulation, history)[1:]
        digests = [*[""] * (len(keys) - 1), run.meta["params_digest"]]  # of the last model only
        rounds = dict(zip(keys, map(CachedRound, history.rows, digests), strict=True))
        return lambda draft, key, evaluated: usable(rounds.get(key), evaluated)

    def _find_in_cache(self, files: CacheFiles) -> FindRound:
        """Looks rounds up in the cache. A round that is missing is locked, to be trained by this run; while another run
        has the lock, this one waits for it."""
        has_reported = False

        def find(draft: Draft, key: str, evaluated: bool) -> CachedRound | None:
            nonlocal has_reported
            has_lock, pause_s = False, POLL_S[0]
            while (cached := usable(files.round(key), evaluated)) is None:
                if has_lock:
                    return None
                has_lock = files.locks.take(key)  # then look once more: it may have been written meanwhile
                if not has_lock:
                    if self.leaves(draft.before):
                        return None
                    if not has_reported:
                        self.say(f"waiting for round {draft.round}, which another run trains")
                    has_reported = True
                    # shows the watchdog that this rank is alive: the other run's round may take as long as that run's
                    # own limits allow
                    self.aggregator.ranks.phase.enter("cache", draft.round)
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, POLL_S[1])
            files.locks.give_back(key)
            return cached

        return find

    def _finished(self, rounds: KeyedRounds) -> ResumePoint | None:
        """The end of the run, where all its rounds were found and its last model is not needed."""
        is_over = rounds.digests and rounds.state.stop_reason
        if not is_over or self.aggregator.experiment.checkpoint.enabled:
            return None
        last = rounds.state.round
        span = _span(last - len(rounds.digests), last)
        note = f"nothing is trained: {span} known already"
        return ResumePoint(rounds.state, None, params_digest=rounds.digests[-1], notes=(note,))

    def _look_up(self, files: CacheFiles, before: KeyedRounds, first_model: Model | None) -> ResumePoint:
        experiment, first = self.aggregator.experiment, before.state.round
        rounds = before.extended(experiment, self.aggregator.simulation, self._find_in_cache(files))
        if finished := self._finished(rounds):
            files.locks.close()
            return finished
        last = rounds.state.round
        models = ((round, files.model(rounds.keys[round])) for round in range(last, first, -1))
        round, model = next(((round, model) for round, model in models if model), (first, first_model))
        retrained = dict(zip(rounds.keys[round + 1 :], rounds.digests[round - first :], strict=True))
        notes = []
        if last > first:
            again = f"; trained again for the model: {_span(round, last)}" if last > round else ""
            notes.append(f"taken from {files.folder}: {_span(first, round)}{again}")
        if files.locks.trouble:
            notes.append(f"warning: {files.locks.trouble}: runs side by side may train the same rounds")
        writer = CacheWriter(
            files, experiment.store.keep_every, rounds.keys[: round + 1], retrained, self.say
        )
        return ResumePoint(rounds.state_after(round), model, cache=writer, notes=tuple(notes))


def _span(after: int, last: int) -> str:
    """The rounds after one and up to another, in words."""
    if last - after < 2:
        return f"round {last}" if last > after else "no round"
    return f"rounds {after + 1} to {last}"
