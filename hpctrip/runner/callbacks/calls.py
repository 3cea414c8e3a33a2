"""Calls the callbacks of a run, each within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any

import numpy as np

from hpctrip.base.errors import cause
from hpctrip.base.text import printable
from hpctrip.ranks.phase import Phase
from hpctrip.runner.callbacks.base import Callback, RunFacts
from hpctrip.sim.rounds import RoundRow

LIMIT_S = 10.0
"""Longest time that one call may take."""
REASON = "callbacks."
"""Beginning of the stop reason of a run that a callback has ended; the callback's name follows."""


class Callbacks:
    """The enabled callbacks of a run, at rank 0. One that raises or exceeds its limit is dropped with a warning."""

    def __init__(
        self,
        callbacks: Mapping[str, Callback],
        run: RunFacts,
        say: Callable[[str], None],
        limit_s: float = LIMIT_S,
        phase: Phase | None = None,
    ):
        """Calls `start` of each enabled one, {name: callback}. `say` prints a line to the user; `phase` is that of this
        rank."""
        self._say, self._limit_s, self._phase = say, limit_s, phase or Phase()
        self._active = {name: each for name, each in callbacks.items() if each.enabled}
        for name, callback in list(self._active.items()):
            limit_s = max(self._limit_s, callback.start_limit_s)
            self._call(name, "start", lambda callback=callback: callback.start(run), limit_s)

    def round(self, row: RoundRow, wall_s: np.ndarray, wall_j: np.ndarray) -> str:
        """Report a recorded round with the totals of every rank (see `Callback.measured`). Returns why the run should
        end, the first reason if there are several; "" if it goes on."""
        reasons = []
        for name, callback in list(self._active.items()):
            reason = self._call(
                name, f"round {row.round}", lambda callback=callback: _report(callback, row, wall_s, wall_j)
            )
            if reason:
                reasons.append(f"{REASON}{name}: {printable(' '.join(reason.split()), 200)}")
        return reasons[0] if reasons else ""

    def end(self, status: str) -> None:
        """Report the end of the run."""
        for name, callback in list(self._active.items()):
            self._call(name, "end", lambda callback=callback: callback.end(status))
        self._active = {}

    def _call(self, name: str, when: str, call: Callable[[], Any], limit_s: float | None = None) -> Any:
        """Return `call()`. If it fails, print a warning, drop the callback and return None."""
        self._phase.enter("record", self._phase.round)  # the watchdog's limit is one call's
        result, error = bounded(call, limit_s or self._limit_s)
        if error:
            del self._active[name]
            self._say(f"warning: callbacks.{name}, {when}: {cause(error)}; it is not called again")
        return result


def bounded(call: Callable[[], Any], limit_s: float) -> tuple[Any, BaseException | None]:
    """Run `call` in a daemon thread; returns (result, None), or (None, error) with TimeoutError after `limit_s`
    seconds. The thread is then abandoned: Python cannot interrupt it, and the process does not wait for it at its
    end."""
    future: Future[Any] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # SystemExit too
            future.set_exception(error)

    try:
        Thread(target=work, daemon=True).start()
        error = future.exception(limit_s)
    except TimeoutError:
        return None, TimeoutError(f"not done within {limit_s:g} s")
    except RuntimeError as no_more_threads:
        return None, no_more_threads
    return (None, error) if error else (future.result(), None)


def _report(callback: Callback, row: RoundRow, wall_s: np.ndarray, wall_j: np.ndarray) -> str | None:
    callback.measured(wall_s, wall_j)
    reason = callback.round(row)
    if not isinstance(reason, str | None):
        raise TypeError(f"round() returned {type(reason).__name__}, not a text or None")
    return reason
