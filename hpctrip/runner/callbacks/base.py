"""The interface of a round callback, and the calls of a run's callbacks, each within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, ClassVar

import numpy as np

from hpctrip.base.errors import cause
from hpctrip.base.text import printable
from hpctrip.config.component import Component, Registry
from hpctrip.ranks.base import Phase
from hpctrip.record.schema import TABLES
from hpctrip.sim.rounds import RoundRow

LIMIT_S = 10.0
"""Longest time that one call may take."""
REASON = "callbacks."
"""Beginning of the stop reason of a run that a callback has ended; the callback's name follows."""


@dataclass(frozen=True)
class RunFacts:
    """The run, as a callback sees it before the first round."""

    name: str
    """The scenario's name."""
    path: Path
    """The results file, absolute. A callback writes its own files beside it unless the user says otherwise."""
    created_utc: str
    """Start time of the run, ISO 8601. A resumed run keeps it, so path and time together identify the run."""
    input: Mapping[str, Any]
    """Every key of the resolved input, nested as in the file."""
    rounds: tuple[RoundRow, ...] = ()
    """The rounds so far, oldest first: empty except in a resumed run. The next round follows the last of them; an
    earlier start may have reported rounds beyond it, which are trained and reported again."""
    hosts: tuple[str, ...] = ("localhost",)
    """Name of every rank's machine."""


class Callback(Component):
    """Base of all round callbacks. Rank 0 calls them: `start` once, `measured` and `round` after every recorded round,
    `end` once. The other ranks meanwhile train the next round.

    All calls come from one thread of the callback's own. A call may take 10 s. A callback that raises or takes longer
    is disabled, with one warning line, and the run goes on. A callback changes no result: it must not write into the
    rows and arrays that it receives. It can end the run, if `round` returns a text: the round in progress is finished,
    then the run ends as by a stop rule, and the results file records the text as the reason.

    The fields of a callback are its keys in the input, as for every component; names of attributes that it changes
    begin with an underscore. In a plug-in:

        from hpctrip.api import CALLBACKS, Callback

        @CALLBACKS.add
        class LossLimit(Callback):
            \"\"\"Ends the run when the training loss exceeds a limit.\"\"\"

            kind = "loss_limit"
            limit: float = 100.0
            \"\"\"Largest training loss.\"\"\"

            def round(self, row):
                if row.train_loss > self.limit:
                    return f"training loss {row.train_loss:.1f} after round {row.round}"

    and in the input:

        [callbacks.loss_limit]
        limit = 20.0
    """

    start_limit_s: ClassVar[float] = 10.0
    """Longest time that `start` may take. All other calls have 10 s."""
    outputs_of_one_run: ClassVar[tuple[str, ...]] = ()
    """Keys that name what only one run may write."""
    enabled: bool = True
    """false: disabled, as if its table were absent."""

    def check(self) -> None:
        """Raise InputError, with a hint, where a package that it needs is not installed. Called before the run."""

    def check_outputs(self, results: Path) -> None:
        """Raise InputError where it would replace a file that it did not write; `results` is the run's file. Called
        before the run."""

    def start(self, run: RunFacts) -> None:
        """Called before the first round of this process; `run.rounds` holds the rounds of earlier ones."""

    def measured(self, wall_s: np.ndarray, wall_j: np.ndarray) -> None:
        """Called before `round` with the wall seconds and the joules of every rank since this process started.

        Arrays [phases, ranks], the phases as in `hpctrip.device.meter.PHASES`. A rank's joules are those of the machine
        whose counters it reads; NaN where it reads none.
        """

    def round(self, row: RoundRow) -> str | None:
        """Called after every recorded round. A text asks the run to end, and is the reason."""

    def end(self, status: str) -> None:
        """Called at the end: "finished", "interrupted" (on request) or "failed"."""


CALLBACKS = Registry("callback")


def scalars(row: RoundRow) -> dict[str, int | float]:
    """The numbers of a round, {column: value} as in the table /rounds of the results file."""
    return {name: getattr(row, name) for name in TABLES["rounds"]}


class Callbacks:
    """The enabled callbacks of a run, at rank 0. One that raises or exceeds its limit is dropped with a warning."""

    def __init__(
        self,
        callbacks: Mapping[str, Callback],
        run: RunFacts,
        say: Callable[[str], None],
        phase: Phase | None = None,
    ):
        """Calls `start` of each enabled one, {name: callback}. `say` prints a line to the user; `phase` is that of this
        rank."""
        self._say, self._phase = say, phase or Phase()
        self._active = {name: each for name, each in callbacks.items() if each.enabled}
        self._workers = {name: Worker() for name in self._active}
        for name, callback in list(self._active.items()):
            self._call(name, "start", max(LIMIT_S, callback.start_limit_s), callback.start, run)

    def round(self, row: RoundRow, wall_s: np.ndarray, wall_j: np.ndarray) -> str:
        """Report a recorded round with the totals of every rank (see `Callback.measured`). Returns why the run should
        end, the first reason if there are several; "" if it goes on."""
        first = ""
        for name, callback in list(self._active.items()):
            call = LIMIT_S, _report, callback, row, wall_s, wall_j
            if reason := self._call(name, f"round {row.round}", *call):
                first = first or f"{REASON}{name}: {printable(' '.join(reason.split()), 200)}"
        return first

    def end(self, status: str) -> None:
        """Report the end of the run."""
        for name, callback in list(self._active.items()):
            self._call(name, "end", LIMIT_S, callback.end, status)
        for worker in self._workers.values():
            worker.close()
        self._active = {}

    def _call(self, name: str, when: str, limit_s: float, function: Callable, *args: Any) -> Any:
        """Return `function(*args)`. If it fails, print a warning, drop the callback and return None."""
        self._phase.enter("record", self._phase.round)  # the watchdog's limit is one call's
        try:
            return self._workers[name].call(lambda: function(*args), limit_s)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too
            del self._active[name]
            self._say(f"warning: callbacks.{name}, {when}: {cause(error)}; it is not called again")


class Worker:
    """A thread that makes all calls of one callback, so that `round` may use what `start` has opened in it, such as a
    connection to a database. The process does not wait for it at its end."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def call(self, function: Callable[[], Any], limit_s: float) -> Any:
        """Return `function()`, run in the thread. Raises its error, and TimeoutError after `limit_s` seconds: the
        thread is then abandoned, as Python cannot interrupt it."""
        future: Future[Any] = Future()
        self._calls.put((future, function))
        try:
            return future.result(limit_s)
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"not done within {limit_s:g} s") from None

    def close(self) -> None:
        """End the thread after its last call."""
        self._calls.put(None)

    def _work(self) -> None:
        while call := self._calls.get():
            future, function = call
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)


def _report(callback: Callback, row: RoundRow, wall_s: np.ndarray, wall_j: np.ndarray) -> str | None:
    callback.measured(wall_s, wall_j)
    reason = callback.round(row)
    if not isinstance(reason, str | None):
        raise TypeError(f"round() returned {type(reason).__name__}, not a text or None")
    return reason
