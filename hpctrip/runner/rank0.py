"""Rank 0's side of the main loop: it announces the next round, writes the files, and decides when to leave."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from hpctrip.base.errors import HpctripError, InterruptedRun
from hpctrip.ranks.placement import Assignment
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator, idle_hosts
from hpctrip.runner.cache.writer import NoCache
from hpctrip.runner.callbacks.calls import Callbacks
from hpctrip.runner.checkpointer import Checkpointer
from hpctrip.runner.progress import Progress
from hpctrip.runner.signals import Interruption
from hpctrip.sim.step import Draft, State


@dataclass(frozen=True)
class Turn:
    """Rank 0's decision after every round. The other ranks receive its first two fields."""

    assignment: Assignment | None
    """The next round; None: the run is over."""
    save: bool
    """A checkpoint of the state before that round is due."""
    draft: Draft | None = None
    """The next round as the simulation has begun it; at rank 0 only."""
    savers: tuple[Checkpointer | NoCache, ...] = ()
    """What writes the state before that round; at rank 0 only."""

    def __reduce__(self) -> tuple[type[Turn], tuple[Assignment | None, bool]]:
        """Only the fields that other ranks need are sent."""
        return Turn, (self.assignment, self.save)


class Rank0:
    """Rank 0's side of the main loop. A file that cannot be written ends the run as an interruption would: it tries to
    write a checkpoint, all ranks leave, and the reason is reported."""

    def __init__(
        self,
        aggregator: Aggregator,
        recorder: Recorder,
        checkpointer: Checkpointer,
        interruption: Interruption,
        progress: Progress,
        callbacks: Callbacks,
        cache: NoCache,
    ):
        self._aggregator, self._recorder, self._checkpointer = aggregator, recorder, checkpointer
        self._interruption, self._progress, self._callbacks = interruption, progress, callbacks
        self._cache = cache
        self._last, self._params = State(), torch.empty(0)  # after the last round of this process
        self._recorded = 0  # number of the last round that is in the results file
        self._interrupted = ""  # why the run leaves early
        self._stop_request = ""  # a callback's reason to end the run
        self._failure: HpctripError | None = None  # why a file could not be written
        self._lost: HpctripError | None = None  # why the last round has no result

    def turn(self, state: State) -> Turn:
        """The next round, or the end. Raises the error by which the last round has no result."""
        if self._lost:
            raise self._lost
        if not state.stop_reason and not self._failure:
            self._interrupted = self._interruption.reason(
                self._aggregator.signals, state.history, self._checkpointer.cost_s
            )
        over = bool(state.stop_reason or self._interrupted or self._failure)
        draft = assignment = None
        if not over:
            draft, assignment = self._aggregator.begin(state)
            self._cache.begin(draft)
            self._warn_once(assignment)
        savers = tuple(saver for saver in (self._checkpointer, self._cache) if saver.due(state, over))
        return Turn(assignment, bool(savers), draft, savers)

    def _warn_once(self, first: Assignment) -> None:
        """Before the first round of this process: hosts that have nothing to train in it."""
        if self._aggregator.num_rounds == 0:
            when = f"in round {first.round}"
            if note := idle_hosts(self._aggregator.host, [first], when):
                self._progress.say(f"note: {note}")

    def save(
        self,
        turn: Turn,
        state: State,
        params: torch.Tensor,
        slots: torch.Tensor,
        kept: Mapping[int, torch.Tensor],
    ) -> None:
        """Write a checkpoint, a model into the store, or both: whatever is due in this turn."""
        try:
            for saver in turn.savers:
                saver.save(state, params, slots, kept)
        except HpctripError as error:
            self._failure = self._failure or error

    def finish_round(
        self, draft: Draft, before: torch.Tensor, params: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """The state after a round that turned the model `before` [P] into `params` (see `Aggregator.finish`). Where the
        round has no result, because training diverged or a component of the world failed, the state before it: the
        next turn then raises the error at all ranks."""
        try:
            state = self._aggregator.finish(draft, params - before, tail, counts)
        except HpctripError as error:
            self._lost = error
            return draft.before
        self._last = replace(state, stop_reason=state.stop_reason or self._stop_request)
        self._params = params
        return self._last

    def record(self) -> None:
        """Write and report the last round. Called while the other ranks train the next one already."""
        if self._last.round == self._recorded:
            return
        self._recorded = self._last.round
        with self._aggregator.host.wall.phase("record", self._last.round):
            try:
                self._recorder.record(self._last.history)
            except HpctripError as error:
                self._failure = self._failure or error
            assert self._last.history.last is not None
            self._cache.finished(self._last.history.last, self._params)
            self._progress.round(self._last)
            self._stop_request = self._stop_request or self._callbacks.round(
                self._last.history.last, self._aggregator.rank_wall_s, self._aggregator.rank_wall_j
            )

    def finish(self, state: State, params_digest: str) -> None:
        """Close the files. `params_digest` is that of the global model. Raises InterruptedRun where the run is to be
        resumed, and the error by which a file could not be written."""
        final = {"status": "finished", "stop_reason": state.stop_reason, "params_digest": params_digest}
        final["rank_phases"] = self._aggregator.rank_phases(state.history)
        if self._failure:
            final |= {"status": "failed", "stop_reason": str(self._failure)}
        elif self._interrupted:
            final |= {"status": "interrupted", "stop_reason": self._interrupted}
        if state.round:
            try:
                self._recorder.close(state.history, final)
            except HpctripError as error:
                self._failure = self._failure or error
        self._callbacks.end("failed" if self._failure else final["status"])
        if self._failure:
            raise self._failure
        if self._interrupted:
            raise InterruptedRun(
                f"interrupted after round {state.round}: {self._interrupted}; {self._checkpointer.resume_hint}"
            )
        self._progress.finished(state, params_digest, self._checkpointer.spent_s)

    def failed(self, error: BaseException) -> None:
        """Record that the run failed, after the rounds that it has finished."""
        self.record()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._last.history.rows:
            with suppress(HpctripError):
                self._recorder.close(self._last.history, {"status": "failed", "stop_reason": reason})
        self._callbacks.end("failed")
