"""What rank 0 does around the rounds: it says who trains next, keeps the files, and decides when to leave."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.assignment import Assignment
from hpctrip.app.callbacks.calls import Callbacks
from hpctrip.app.checkpointer import Checkpointer
from hpctrip.app.idle import idle_hosts
from hpctrip.app.progress import Progress
from hpctrip.app.signals import Interruption
from hpctrip.app.storing import NoStore
from hpctrip.base.errors import HpctripError, InterruptedRun
from hpctrip.record.writer import Recorder
from hpctrip.sim.state import State
from hpctrip.sim.step import Draft


@dataclass(frozen=True)
class Turn:
    """What rank 0 tells all others after every round."""

    assignment: Assignment | None
    """The next round; None: it is over."""
    save: bool
    """A checkpoint of the state before that round is due."""


class Leader:
    """Rank 0's side of the main loop. A file that cannot be written ends the run as an interruption would: a
    checkpoint is tried, everyone leaves, the reason is reported."""

    def __init__(
        self,
        aggregator: Aggregator,
        recorder: Recorder,
        checkpointer: Checkpointer,
        interruption: Interruption,
        progress: Progress,
        callbacks: Callbacks,
        filler: NoStore,
    ):
        self._aggregator, self._recorder, self._checkpointer = aggregator, recorder, checkpointer
        self._interruption, self._progress, self._callbacks = interruption, progress, callbacks
        self._filler = filler
        self._savers: list[Checkpointer | NoStore] = []  # those to which the state before the next round goes
        self._draft: Draft | None = None  # the round in progress
        self._last, self._recorded = State(), 0
        self._params = torch.empty(0)  # after the last round
        self._interrupted = ""
        self._stop_request = ""  # of a callback
        self._failure: HpctripError | None = None
        self._lost: HpctripError | None = None  # why the last round has no result

    def turn(self, state: State) -> Turn:
        """After every round: the next one, or the end. Raises what kept the last one from having a result."""
        if self._lost:
            raise self._lost
        if not state.stop_reason and not self._failure:
            self._interrupted = self._interruption.reason(
                self._aggregator.signals, state.history, self._checkpointer.cost_s
            )
        over = bool(state.stop_reason or self._interrupted or self._failure)
        assignment = None
        if not over:
            self._draft, assignment = self._aggregator.begin(state)
            self._filler.begin(self._draft)
            self._warn_once(assignment)
        self._savers = [saver for saver in (self._checkpointer, self._filler) if saver.due(state, over)]
        return Turn(assignment, bool(self._savers))

    def _warn_once(self, first: Assignment) -> None:
        """Before the first round of this process: hosts that have nothing to train in it."""
        if self._aggregator.num_rounds == 0:
            when = f"in round {first.round}"
            if note := idle_hosts(self._aggregator.host, [first], when):
                self._progress.say(f"note: {note}")

    def save(
        self, state: State, params: torch.Tensor, slots: torch.Tensor, kept: Mapping[int, torch.Tensor]
    ) -> None:
        """Write a checkpoint, or what the store keeps, or both: whatever is due."""
        try:
            for saver in self._savers:
                saver.save(state, params, slots, kept)
        except HpctripError as error:
            self._failure = self._failure or error

    def finish_round(
        self, state: State, before: torch.Tensor, params: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """The round in progress, which turned the model `before` [P] into `params`, is done: the state after it (see
        `Aggregator.finish`). Where training diverged, or the world is of no use, there is no such state, and the next
        turn tells everyone."""
        assert self._draft is not None
        try:
            state = self._aggregator.finish(self._draft, params - before, tail, counts)
            state = replace(state, stop_reason=state.stop_reason or self._stop_request)
            self._last, self._params = state, params
        except HpctripError as error:
            self._lost = error
        return state

    def record(self) -> None:
        """The last round's row and its line. Called when the others know what comes next: they need not wait for it."""
        if self._last.round == self._recorded:
            return
        self._recorded = self._last.round
        with self._aggregator.host.wall.phase("record", self._last.round):
            try:
                self._recorder.record(self._last.history)
            except HpctripError as error:
                self._failure = self._failure or error
            assert self._last.history.last is not None
            self._filler.finished(self._last.history.last, self._params)
            self._progress.round(self._last)
            self._stop_request = self._stop_request or self._callbacks.round(
                self._last.history.last, self._aggregator.rank_wall_s, self._aggregator.rank_wall_j
            )

    def finish(self, state: State, params_digest: str) -> None:
        """Close the files. `params_digest` is that of the global model. Raises InterruptedRun where the run is to be
        resumed, and what kept a file from being written."""
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
                f"interrupted after round {state.round}: {self._interrupted}; {self._checkpointer.way_on}"
            )
        self._progress.finished(state, params_digest, self._checkpointer.spent_s)

    def failed(self, error: BaseException) -> None:
        """Record an end that nobody planned, after as many rows as there are."""
        self.record()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._last.history.rows:
            with suppress(HpctripError):
                self._recorder.close(self._last.history, {"status": "failed", "stop_reason": reason})
        self._callbacks.end("failed")
