"""The contract of a round callback: it is told what happened, and nothing that it does reaches the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from hpctrip.app.rank_totals import RankTotals
from hpctrip.base.component import Component, Registry
from hpctrip.sim.rounds import RoundRow

_TABLES = ("cohort", "candidates")
"""The fields of a row that are tables of their own."""


@dataclass(frozen=True)
class RunFacts:
    """What a callback is told of the run before its first round."""

    name: str
    """The scenario's name."""
    path: Path
    """The results file, absolute. What a callback writes lies beside it unless the user says otherwise."""
    created_utc: str
    """When the run began, ISO 8601. A run that is resumed keeps it: with the path it names the run."""
    input: Mapping[str, Any]
    """Every key of the input with the value in force, nested as in the file."""
    rounds: tuple[RoundRow, ...] = ()
    """The rounds so far, oldest first: empty but for a run that goes on. The rounds to come follow the last of them, so
    whatever else was written by an earlier start is about to come again."""
    hosts: tuple[str, ...] = ("localhost",)
    """Name of every rank's machine."""
    rank: int = 0
    """Whose process this is: 0, but for callbacks `on_every_machine`."""


class Callback(Component):
    """Base of all round callbacks. Rank 0 alone calls them, unless they are `on_every_machine`: `start` once, `round`
    after every recorded round, `end` once, in this order and in a thread that belongs to this callback.

    A callback changes no result, and cannot end or hold up a run. It gets copies, whose arrays are read-only. The run
    does not wait for it; only at the very end, for a bounded time. What it raises is said in one line, and it is not
    called again. It is a part of the process all the same: what ends the process ends the run, and long
    computations in Python take their time from rank 0.

    Its fields are its keys in the input, as for every component; what it remembers begins with an underscore. In a
    plug-in:

        from hpctrip.app.callbacks import CALLBACKS, Callback

        @CALLBACKS.add
        class Rises(Callback):
            \"\"\"Prints the rounds in which the accuracy has risen by a step.\"\"\"

            kind = "rises"
            step: float = 0.1
            \"\"\"Smallest rise that is printed.\"\"\"
            _last: float = 0.0

            def round(self, row):
                if row.accuracy >= self._last + self.step:
                    self._last = row.accuracy
                    print(f"accuracy {row.accuracy:.2f} after round {row.round}")

    and in the input:

        [callbacks.rises]
        step = 0.05
    """

    on_every_machine: ClassVar[bool] = False
    """The first rank of each other machine calls one of its own, too, but never `round`. All of them are called `ranks`
    after every round."""
    enabled: bool = True
    """false: it is not called, as if its table were not there."""

    def check(self) -> None:
        """Raise InputError, with the way out, where what it needs is not installed. Called before the run."""

    def check_outputs(self, results: Path) -> None:
        """Raise InputError where a file that it would write is not its own to replace; `results` is the run's file.
        Called before the run."""

    def start(self, run: RunFacts) -> None:
        """The run begins, or goes on."""

    def round(self, row: RoundRow) -> None:
        """One more round is recorded."""

    def ranks(self, totals: RankTotals) -> None:
        """What every rank has spent by now; only where `on_every_machine`."""

    def end(self, status: str) -> None:
        """It is over: "finished", "interrupted" (to be resumed) or "failed"."""


CALLBACKS = Registry("callback")


def scalars(row: RoundRow) -> dict[str, int | float]:
    """The numbers of a round, {column: value} as in the table /rounds of the results file."""
    return {field.name: getattr(row, field.name) for field in fields(row) if field.name not in _TABLES}
