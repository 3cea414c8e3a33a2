"""The main loop: federated averaging with site selection (Algorithm 1). Every rank runs it; rank 0 also plans rounds,
writes files, and decides when the run ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from hpctrip.base.errors import HpctripError, InterruptedRun, UnsavedRun
from hpctrip.learn.params import digest
from hpctrip.ranks.base import hostname
from hpctrip.ranks.placement import Assignment
from hpctrip.record.checkpoint import Checkpointer, Model
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator, idle_hosts
from hpctrip.runner.cache.writer import CacheWriter
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.host import Host, server_step
from hpctrip.runner.signals import Interruption
from hpctrip.sim.step import Draft, State

if TYPE_CHECKING:
    from hpctrip.runner.progress import Progress

Saver = Checkpointer | CacheWriter
"""Writes the state and the model after a round."""


def train(host: Host, state: State, params: torch.Tensor, rank0: Rank0 | None) -> tuple[State, torch.Tensor]:
    """Train from `state` and the global model `params` [P], equal at all ranks, to the end of the run.

    `rank0` is rank 0's part of the loop; None elsewhere. Returns the last state (valid at rank 0 only) and the global
    model [P]. A collective.
    """
    ranks, round = host.ranks, state.round
    draft: Draft | None = None
    savers: list[Saver] = []

    def decide() -> tuple[Assignment | None, bool]:
        """Rank 0's decision, as far as the other ranks need it: the next round's work, and whether to save."""
        nonlocal draft, savers
        assert rank0 is not None
        draft, assignment, savers = rank0.decide(state)
        return assignment, bool(savers)

    while True:
        ranks.phase.enter("record", round)
        assignment, saves = ranks.decide_on_root(decide)  # 1. who trains, or that it is over
        if saves:
            slots, site_states = ranks.collect(host.slots), ranks.gather_rows(host.memory.rows)
            if rank0:
                rank0.save(savers, state, params, slots, site_states)
        if rank0:
            rank0.record()  # 6. of the round before, while the hosts are at this one: its row on disk, its line
        if assignment is None:
            meters = ranks.gather(host.meter.description and f"{hostname()}: {host.meter.description}")
            if rank0:
                rank0.meters = list(filter(None, meters))
            return state, params
        before, round = params, assignment.round
        params, tail, counts = train_round(host, before, assignment)  # 2. to 4.
        if rank0:
            # 5. the virtual clock (Eqs. 3-7), one more row
            state = rank0.finish_round(draft, before, params, tail, counts)


def train_round(
    host: Host, params: torch.Tensor, assignment: Assignment
) -> tuple[torch.Tensor, np.ndarray | None, np.ndarray | None]:
    """Train one round from the global model `params` [P + B]. Returns the new model at every rank and, at rank 0, the
    counters TRAINING and EVALUATION of all ranks. A collective."""
    ranks, counters = host.ranks, {}

    def step(total: torch.Tensor) -> torch.Tensor:
        nonlocal counters
        stepped, counters = server_step(host, params, assignment, total, integers)
        return stepped

    hosted, integers = host.train(params, assignment)  # 2. my blocks of sites, on my device
    with host.wall.phase("exchange", assignment.round):
        if host.num_integers:
            integers = ranks.largest(integers)
        # 3. sum of p_i delta_i; the new model where it lives, then to all (Eq. 2)
        new_params, tail = ranks.combine(hosted, len(params), step)
    with host.wall.phase("evaluate", assignment.round):
        # 4. integer counts: correct, seen
        counts = ranks.total(host.evaluate(new_params, assignment, counters))
    return new_params, tail, counts


def _with_hint(error: HpctripError, state: State, checkpointer: Checkpointer) -> HpctripError:
    """The error that ended a run after `state`; its message ends with the command that resumes it, where one does."""
    if checkpointer.newest:
        error.args = (f"{error}; interrupted after round {state.round}; {checkpointer.resume_hint}",)
    return error


@dataclass(eq=False)
class Rank0:
    """Rank 0's part of the main loop. If a file cannot be written, the run ends as after an interruption: rank 0 tries
    to write a checkpoint, all ranks leave the loop, and the error is raised."""

    aggregator: Aggregator
    recorder: Recorder
    checkpointer: Checkpointer
    interruption: Interruption
    progress: Progress
    callbacks: Callbacks
    cache: CacheWriter | None
    meters: list[str] = field(default_factory=list)
    """What each machine has counted, and what it could not, after the last round."""
    _last: State = field(default_factory=State)
    """The state after the last round of this process."""
    _unrecorded: torch.Tensor | None = None
    """The model after that round, until the round is recorded."""
    _early_end: HpctripError | None = None
    """Why the run leaves early: it is interrupted, or a file could not be written."""
    _lost: HpctripError | None = None
    """The error of a last round without a result."""

    def decide(self, state: State) -> tuple[Draft | None, Assignment | None, list[Saver]]:
        """The draft and the assignment of the next round, None where the run is over, and the writers that save the
        state before it. Raises the error of a last round without a result."""
        if self._lost:
            raise self._lost
        if not state.stop_reason and not self._early_end:
            signals, cost_s = self.aggregator.signals, self.checkpointer.cost_s
            if reason := self.interruption.reason(signals, state.history, cost_s):
                self._early_end = InterruptedRun(reason)
        over = bool(state.stop_reason or self._early_end)
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

    def save(
        self,
        savers: Iterable[Saver],
        state: State,
        params: torch.Tensor,
        slots: torch.Tensor,
        site_states: Mapping[int, torch.Tensor],
    ) -> None:
        """Write a checkpoint, a model of the cache, or both."""
        rows = {site: row.cpu().numpy() for site, row in site_states.items()}
        model = Model(params.cpu().numpy(), slots.cpu().numpy(), rows)
        try:
            for saver in savers:
                saver.save(state, model)
        except HpctripError as error:
            self._fail(error)

    def finish_round(
        self, draft: Draft, before: torch.Tensor, params: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """The state after a round that changed the model from `before` [P] to `params` [P] (see `Aggregator.finish`).

        If training diverged or a component of the world failed, it returns the state before the round, and the next
        `decide` raises the error: raising it here would leave the other ranks waiting in a collective.
        """
        try:
            state = self.aggregator.finish(draft, params - before, tail, counts)
        except HpctripError as error:
            self._lost = error
            return draft.before
        # the reason that the last state has now is the request of a callback
        self._last = replace(state, stop_reason=state.stop_reason or self._last.stop_reason)
        self._unrecorded = params
        return self._last

    def record(self) -> None:
        """Write and report the last round, while the other ranks train the next one."""
        params, row, self._unrecorded = self._unrecorded, self._last.history.last, None
        if params is None or row is None:
            return
        with self.aggregator.host.wall.phase("record", row.round):
            try:
                self.recorder.record(self._last.history)
                self.checkpointer.remove_replaced()
            except HpctripError as error:
                self._fail(error)
            if self.cache:
                self.cache.finished(row, digest(params))
            self.progress.round(self._last)
            totals = self.aggregator.rank_wall_s, self.aggregator.rank_wall_j
            request = self.callbacks.round(row, *totals)
            self._last = replace(self._last, stop_reason=self._last.stop_reason or request)

    def finish(self, state: State, params_digest: str) -> None:
        """Write the final results and end the callbacks. `params_digest` is the digest of the global model. Raises
        InterruptedRun if the run left early, UnsavedRun if it did so without a checkpoint, and the error of a file that
        could not be written."""
        final = {
            "status": self._status,
            "stop_reason": str(self._early_end) if self._early_end else state.stop_reason,
            "params_digest": params_digest,
            "meters": self.meters,
            "rank_phases": self.aggregator.rank_phases(state.history),
        }
        if state.round:
            try:
                self.recorder.write(state.history, **final)
                self.checkpointer.remove_replaced()
            except HpctripError as error:
                self._fail(error)
        self.callbacks.end(self._status)
        if isinstance(self._early_end, InterruptedRun):
            raise self._left(f"interrupted after round {state.round}: {self._early_end}")
        if self._early_end:
            raise _with_hint(self._early_end, state, self.checkpointer)
        self.progress.finished(state, params_digest, self.checkpointer.spent_s)

    def _left(self, why: str) -> HpctripError:
        """The error of a run that left early: it can go on from a checkpoint, from the cache, or not at all."""
        if not (unsaved := self.checkpointer.unsaved):
            return InterruptedRun(f"{why}; {self.checkpointer.resume_hint}")
        if self.cache and self.cache.place:
            return InterruptedRun(f"{why}; start it again: its rounds are in {self.cache.place}")
        return UnsavedRun(f"{why}; {unsaved}")

    @property
    def _status(self) -> str:
        if isinstance(self._early_end, InterruptedRun):
            return "interrupted"
        return "failed" if self._early_end else "finished"

    def _fail(self, error: HpctripError) -> None:
        """End the run because a file could not be written; the first such error counts, and more than an
        interruption."""
        if self._status != "failed":
            self._early_end = error

    def failed(self, error: BaseException) -> None:
        """Record the finished rounds and that the run failed with `error`."""
        self.record()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._last.history.rows:
            with suppress(HpctripError):
                self.recorder.write(self._last.history, status="failed", stop_reason=reason)
        self.callbacks.end("failed")
