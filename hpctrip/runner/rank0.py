"""Rank 0's part of the main loop: it plans rounds, writes files, and decides when the run ends."""

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
class LoopDecision:
    """Rank 0's decision before every round. The other ranks receive only its first two fields."""

    assignment: Assignment | None
    """The next round; None: the run is over."""
    save: bool
    """Whether the state before that round is to be collected and saved."""
    draft: Draft | None = None
    """The simulation's draft of the next round; at rank 0 only."""
    savers: tuple[Checkpointer | NoCache, ...] = ()
    """The writers that save the state before that round; at rank 0 only."""

    def __reduce__(self) -> tuple[type[LoopDecision], tuple[Assignment | None, bool]]:
        """Only the fields that other ranks need are sent."""
        return LoopDecision, (self.assignment, self.save)


class Rank0:
    """Rank 0's part of the main loop. If a file cannot be written, the run ends as after an interruption: rank 0 tries
    to write a checkpoint, all ranks leave the loop, and the error is raised."""

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
        self._last, self._params = (
            State(),
            torch.empty(0),
        )  # state and model after the last round of this process
        self._recorded = 0  # number of the last round that is in the results file
        self._interrupted = ""  # the reason to leave early
        self._stop_request = ""  # a callback's reason to end the run
        self._failure: HpctripError | None = None  # the error of a file that could not be written
        self._lost: HpctripError | None = None  # the error of a last round without a result

    def decide(self, state: State) -> LoopDecision:
        """Decide on the next round, or end the run. Raises the error of a last round without a result."""
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
            self._report_idle_hosts(assignment)
        savers = tuple(saver for saver in (self._checkpointer, self._cache) if saver.due(state, over))
        return LoopDecision(assignment, bool(savers), draft, savers)

    def _report_idle_hosts(self, first: Assignment) -> None:
        """Before the first round of this process, report hosts that train no site in it."""
        if self._aggregator.num_rounds == 0:
            when = f"in round {first.round}"
            if note := idle_hosts(self._aggregator.host, [first], when):
                self._progress.say(f"note: {note}")

    def save(
        self,
        decision: LoopDecision,
        state: State,
        params: torch.Tensor,
        slots: torch.Tensor,
        site_states: Mapping[int, torch.Tensor],
    ) -> None:
        """Write a checkpoint, a model of the cache, or both, as `decision` says."""
        try:
            for saver in decision.savers:
                saver.save(state, params, slots, site_states)
        except HpctripError as error:
            self._failure = self._failure or error

    def finish_round(
        self, draft: Draft, before: torch.Tensor, params: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """The state after a round that changed the model from `before` [P] to `params` [P] (see `Aggregator.finish`).

        If training diverged or a component of the world failed, it returns the state before the round, and the next
        `decide` raises the error: raising it here would leave the other ranks waiting in a collective.
        """
        try:
            state = self._aggregator.finish(draft, params - before, tail, counts)
        except HpctripError as error:
            self._lost = error
            return draft.before
        self._last = replace(state, stop_reason=state.stop_reason or self._stop_request)
        self._params = params
        return self._last

    def record(self) -> None:
        """Write and report the last round, while the other ranks train the next one."""
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
        """Write the final results and end the callbacks. `params_digest` is the digest of the global model. Raises
        InterruptedRun if the run left early, and the error of a file that could not be written."""
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
        """Record the finished rounds and that the run failed with `error`."""
        self.record()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._last.history.rows:
            with suppress(HpctripError):
                self._recorder.close(self._last.history, {"status": "failed", "stop_reason": reason})
        self._callbacks.end("failed")
