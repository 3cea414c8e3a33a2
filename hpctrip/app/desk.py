"""What rank 0 does around the rounds: it says who trains next, keeps the files, and decides when to leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpctrip.app.config import Checkpointing
from hpctrip.app.experiment import Plan, Run, State
from hpctrip.app.progress import Progress
from hpctrip.app.signals import Interruption
from hpctrip.base.errors import DivergedError, HpctripError, InterruptedRun
from hpctrip.learn.params import digest
from hpctrip.record.checkpoint import Checkpoint, Generations
from hpctrip.record.writer import Recorder


@dataclass(frozen=True)
class Turn:
    """What rank 0 tells all others after every round."""

    plan: Plan | None
    """The next round; None: it is over."""
    save: bool
    """A checkpoint of the state before that round is due."""


class Keeper:
    """Writes checkpoints when they are due. It paces itself by what the last one cost."""

    def __init__(
        self,
        rules: Checkpointing,
        files: Generations,
        input_toml: str,
        about: Mapping[str, Any],
        saved_round: int,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """`saved_round` is the round that is on disk already; `clock` is the wall clock in seconds."""
        self._rules, self._files, self._clock = rules, files, clock
        self._input_toml, self._about = input_toml, about
        self._saved, self._end, self.cost_s, self.spent_s = saved_round, clock(), 0.0, 0.0

    def due(self, state: State, over: bool) -> bool:
        """Should `state` be saved? Always where it is the last one."""
        rules, rounds = self._rules, state.round - self._saved
        if not rules.enabled or not state.round or (rounds == 0 and not (over and state.stop_reason)):
            return False
        waited_s = self._clock() - self._end
        paced = waited_s >= max(rules.every_s, self.cost_s / rules.max_fraction)
        return over or paced or (rules.every_rounds is not None and rounds >= rules.every_rounds)

    def save(
        self, state: State, params: torch.Tensor, slots: torch.Tensor, residuals: Mapping[int, torch.Tensor]
    ) -> None:
        """Write a checkpoint. Raises HpctripError where it cannot be written; the one before is then intact."""
        start = self._clock()
        self._files.write(
            Checkpoint(
                round=state.round,
                clock_s=state.clock_s,
                stop_reason=state.stop_reason,
                history=state.history,
                params=params.cpu().numpy(),
                slots=slots.cpu().numpy(),
                residuals={site: row.cpu().numpy() for site, row in residuals.items()},
                input_toml=self._input_toml,
                about=self._about,
            )
        )
        self._saved, self._end = state.round, self._clock()
        self.cost_s = self._end - start
        self.spent_s += self.cost_s


class Desk:
    """Rank 0's side of the main loop. A file that cannot be written ends the run as an interruption would: a
    checkpoint is tried, everyone leaves, the reason is reported."""

    def __init__(
        self, run: Run, recorder: Recorder, keeper: Keeper, interruption: Interruption, progress: Progress
    ):
        self._run, self._recorder, self._keeper = run, recorder, keeper
        self._interruption, self._progress = interruption, progress
        self._last, self._recorded = State(), 0
        self._interrupted = ""
        self._failure: HpctripError | None = None
        self._diverged: DivergedError | None = None

    def turn(self, state: State) -> Turn:
        """After every round: the next one, or the end. Raises DivergedError where the last one had no result."""
        if self._diverged:
            raise self._diverged
        if not state.stop_reason and not self._failure:
            self._interrupted = self._interruption.reason(
                self._run.signals, state.history, self._keeper.cost_s
            )
        over = bool(state.stop_reason or self._interrupted or self._failure)
        return Turn(None if over else self._run.plan(state), self._keeper.due(state, over))

    def save(
        self, state: State, params: torch.Tensor, slots: torch.Tensor, residuals: Mapping[int, torch.Tensor]
    ) -> None:
        """Write a checkpoint."""
        try:
            self._keeper.save(state, params, slots, residuals)
        except HpctripError as error:
            self._failure = self._failure or error

    def advance(
        self, state: State, plan: Plan, change: torch.Tensor, tail: np.ndarray, counts: np.ndarray
    ) -> State:
        """One more round is done: the state after it (see `Run.advance`). Where training diverged there is no such
        state, and the next turn tells everyone."""
        try:
            state = self._last = self._run.advance(state, plan, change, tail, counts)
        except DivergedError as error:
            self._diverged = error
        return state

    def record(self) -> None:
        """The last round's row and its line. Called when the others know what comes next: they need not wait for it."""
        if self._last.round == self._recorded:
            return
        self._recorded = self._last.round
        with self._run.wall.phase("record", self._last.round):
            try:
                self._recorder.record(self._last.history)
            except HpctripError as error:
                self._failure = self._failure or error
            self._progress.round(self._last)

    def finish(self, state: State, params: torch.Tensor) -> None:
        """Close the files. Raises InterruptedRun where the run is to be resumed, and what kept a file from being
        written."""
        final = {"status": "finished", "stop_reason": state.stop_reason, "params_digest": digest(params)}
        final["rank_phases"] = self._run.rank_phases(state.history)
        if self._failure:
            final |= {"status": "failed", "stop_reason": str(self._failure)}
        elif self._interrupted:
            final |= {"status": "interrupted", "stop_reason": self._interrupted}
        if state.round:
            try:
                self._recorder.close(state.history, final)
            except HpctripError as error:
                self._failure = self._failure or error
        if self._failure:
            raise self._failure
        if self._interrupted:
            raise InterruptedRun(f"interrupted after round {state.round}: {self._interrupted}; to be resumed")
        self._progress.finished(state, final["params_digest"], self._keeper.spent_s)

    def failed(self, error: BaseException) -> None:
        """Record an end that nobody planned, after as many rows as there are."""
        self.record()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        if self._last.history.rows:
            with suppress(HpctripError):
                self._recorder.close(self._last.history, {"status": "failed", "stop_reason": reason})
