"""The main loop: federated averaging with site selection (Algorithm 1). Every rank runs it; rank 0 also plans rounds,
writes files, and decides when the run ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hpctrip.base.errors import HpctripError, InterruptedRun, UnsavedRun
from hpctrip.learn.params import digest
from hpctrip.ranks.placement import Assignment
from hpctrip.record.checkpoint import Checkpoint, Checkpointer, Model
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator, idle_hosts
from hpctrip.runner.cache.writer import CacheWriter
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.experiment import Experiment
from hpctrip.runner.host import Host
from hpctrip.runner.signals import Interruption, Signals
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Draft, State

if TYPE_CHECKING:
    from hpctrip.runner.progress import Progress


Saver = Checkpointer | CacheWriter
"""Writes the state and the model after a round."""


@dataclass(frozen=True, eq=False)
class ResumePoint:
    """The state and the model from which a run goes on, which are all that its next round depends on."""

    state: State
    model: Model | None
    """The model after `state`; None: the initial one, or none is needed."""
    params_digest: str | None = None
    """Digest of the model after `state` where the model itself is not needed; None: take that of the model."""
    cache: CacheWriter | None = None
    """Writes the rounds that are trained from here on into the cache."""
    notes: tuple[str, ...] = ()
    """Lines for the user."""


def state_of(checkpoint: Checkpoint, experiment: Experiment) -> State:
    """The state after the last round of a checkpoint, before the stop rules are applied.

    A run evaluates its last round even where `evaluate.every_rounds` does not ask for it. If the run now goes on beyond
    that round, the evaluation is removed from the history, so that it equals that of a run that never stopped.
    """
    state, row = checkpoint.state, checkpoint.state.history.last
    due, last = experiment.evaluate.due, experiment.stop.max_rounds
    if row is not None and row.eval_seen and not due(row.round, last):
        unknown = ("accuracy", "eval_loss", "eval_perplexity", "efficiency")
        row = replace(row, eval_correct=0, eval_seen=0, **dict.fromkeys(unknown, math.nan))
        state = replace(state, history=History((*state.history.rows[:-1], row)))
    return replace(state, stop_reason="")


def train(
    host: Host, state: State, params: torch.Tensor, results: Results | None, signals: Signals
) -> tuple[State, torch.Tensor]:
    """Train from `state` and the global model `params` [P + B], equal at all ranks, to the end of the run.

    `results` is where rank 0 writes; None elsewhere. `signals` are those of this rank. Returns the last state (valid at
    rank 0 only) and the global model [P + B]. A collective.

    What a round leaves to the next one is `state` and the model: `params`, and what hosts keep of the server, of sites,
    and of updates that arrive later (`Model`).
    """
    ranks, round = host.ranks, state.round
    draft: Draft | None = None
    savers: list[Saver] = []
    lost: HpctripError | None = None

    def decide() -> tuple[Assignment | None, bool]:
        """Rank 0's decision, as far as the other ranks need it: the next round's work, and whether to save."""
        nonlocal draft, savers
        if lost:
            raise lost
        assert results is not None
        draft, assignment, savers = results.decide(state)
        return assignment, bool(savers)

    try:
        while True:
            ranks.phase.enter("record", round)
            assignment, saves = ranks.decide_on_root(decide)  # 1. who trains, or that it is over
            if saves:
                model = host.collect(params)
                if results:
                    results.save(savers, state, model)
            # 6. of the round before, while the hosts are at this one: its row on disk, its line
            request = results.record(state, params) if results else ""
            if assignment is None:
                return state, params
            before, round = params, assignment.round
            params, tail, counts = train_round(host, before, assignment, signals)  # 2. to 4.
            if results:
                try:  # 5. the virtual clock (Eqs. 3-7), one more row
                    state = results.aggregator.finish(draft, before, params, tail, counts)
                    state = replace(state, stop_reason=state.stop_reason or request)
                except HpctripError as error:
                    lost = error  # raised in the next decision: here it would leave the other ranks in a collective
    except BaseException as error:
        if results:
            results.failed(error, state, params)
        raise


def train_round(
    host: Host, params: torch.Tensor, assignment: Assignment, signals: Signals | None = None
) -> tuple[torch.Tensor, np.ndarray | None, np.ndarray | None]:
    """Train one round from the global model `params` [P + B]. Returns the new model at every rank and, at rank 0, the
    counters TRAINING and EVALUATION of all ranks. A collective."""
    ranks, counters = host.ranks, {}

    def step(total: torch.Tensor) -> torch.Tensor:
        nonlocal counters
        stepped, counters = host.server_step(params, assignment, total, integers)
        return stepped

    hosted, integers = host.train(params, assignment)  # 2. my blocks of sites, on my device
    with host.wall.phase("exchange", assignment.round):
        if host.num_integers:
            integers = ranks.largest(integers)
        # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
        new_params, tail = ranks.combine(hosted, len(params), step)
    with host.wall.phase("evaluate", assignment.round):
        # 4. integer counts: correct, seen
        counts = ranks.total(host.evaluate(new_params, assignment, counters, signals))
    return new_params, tail, counts


@dataclass(eq=False)
class Results:
    """Rank 0's part of the main loop: the decision about the next round, and all that is written of the last one. If a
    file cannot be written, the run ends as after an interruption: rank 0 tries to write a checkpoint, all ranks leave
    the loop, and the error is raised."""

    aggregator: Aggregator
    recorder: Recorder
    checkpointer: Checkpointer
    interruption: Interruption
    progress: Progress
    callbacks: Callbacks
    cache: CacheWriter | None
    recorded_round: int = 0
    """The last round that is recorded, in this process or before."""
    early_end: HpctripError | None = None
    """Why the run leaves before its end: it is interrupted, or a file could not be written. It is no part of the state:
    a run that is resumed goes on."""

    def decide(self, state: State) -> tuple[Draft | None, Assignment | None, list[Saver]]:
        """The draft and the assignment of the round after `state`, None where the run is over, and the writers that
        save the state before it."""
        if not state.stop_reason and not self.early_end:
            signals, cost_s = self.aggregator.received_signals, self.checkpointer.cost_s
            if reason := self.interruption.reason(signals, state.history, cost_s):
                self.early_end = InterruptedRun(reason)
        over = bool(state.stop_reason or self.early_end)
        draft = assignment = None
        if not over:
            draft, assignment = self.aggregator.begin(state)
            if self.cache:
                self.cache.begin(draft)
            if self.aggregator.num_rounds == 0:
                note = idle_hosts(self.aggregator.host, [assignment], f"in round {assignment.round}")
                if note:
                    self.progress.say(f"note: {note}")
        savers = [saver for saver in (self.checkpointer, self.cache) if saver and saver.due(state, over)]
        return draft, assignment, savers

    def save(self, savers: Iterable[Saver], state: State, model: Model) -> None:
        """Write a checkpoint, a model of the cache, or both."""
        try:
            for saver in savers:
                saver.save(state, model)
        except HpctripError as error:
            self._fail(error)

    def record(self, state: State, params: torch.Tensor) -> str:
        """Write and report the last round, after which the model is `params` [P + B], unless that is done. Returns why
        a callback asks the run to end; "" if none does."""
        row = state.history.last
        if row is None or row.round == self.recorded_round:
            return ""
        self.recorded_round = row.round
        with self.aggregator.host.wall.phase("record", row.round):
            try:
                if not state.stop_reason:  # else `close` writes it next
                    self.recorder.record(state.history)
                    self.checkpointer.remove_replaced()
            except HpctripError as error:
                self._fail(error)
            if self.cache:
                self.cache.finished(row, digest(params))
            self.progress.round(state)
            return self.callbacks.round(row, self.aggregator.rank_wall_s, self.aggregator.rank_wall_j)

    def close(self, state: State, params_digest: str, meters: Sequence[str]) -> None:
        """Write the final results and end the callbacks. `params_digest` is the digest of the global model; `meters`
        tell what each machine has counted, and what it could not. Raises InterruptedRun if the run left early,
        UnsavedRun if it did so without a checkpoint, and the error of a file that could not be written."""
        if state.round:
            try:
                self.recorder.write(
                    state.history,
                    status=self._status,
                    stop_reason=str(self.early_end) if self.early_end else state.stop_reason,
                    params_digest=params_digest,
                    meters=list(meters),
                    rank_phases=self.aggregator.rank_phases(state.history),
                )
                self.checkpointer.remove_replaced()
            except HpctripError as error:
                self._fail(error)
        self.callbacks.end(self._status)
        if self.early_end:
            raise self._left(self.early_end, f"interrupted after round {state.round}")
        self.progress.finished(state, params_digest, self.checkpointer.spent_s)

    def _left(self, why: HpctripError, left: str) -> HpctripError:
        """The error of a run that has left early, and how it goes on: from a checkpoint, from the cache, or not."""
        checkpointer = self.checkpointer
        if not isinstance(why, InterruptedRun):
            if checkpointer.newest:
                why.args = (f"{why}; {left}; {checkpointer.resume_hint}",)
            return why
        if not (unsaved := checkpointer.unsaved):
            return InterruptedRun(f"{left}: {why}; {checkpointer.resume_hint}")
        if self.cache and self.cache.place:
            return InterruptedRun(f"{left}: {why}; start it again: its rounds are in {self.cache.place}")
        return UnsavedRun(f"{left}: {why}; {unsaved}")

    @property
    def _status(self) -> str:
        if isinstance(self.early_end, InterruptedRun):
            return "interrupted"
        return "failed" if self.early_end else "finished"

    def _fail(self, error: HpctripError) -> None:
        """End the run because a file could not be written; the first such error counts, and more than an
        interruption."""
        if self._status != "failed":
            self.early_end = error

    def failed(self, error: BaseException, state: State, params: torch.Tensor) -> None:
        """Record the finished rounds, the last of which led to `state` and `params`, and that the run failed with
        `error`."""
        self.record(state, params)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self.aggregator.num_rounds:
            with suppress(HpctripError):
                self.recorder.write(state.history, status="failed", stop_reason=reason)
        self.callbacks.end("failed")
