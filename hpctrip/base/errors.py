"""The exceptions of hpctrip.

HpctripError                 anything that hpctrip itself reports; one clear text, no traceback needed
├── InputError               the user's input is wrong: exit code 2
├── DivergedError            training left the finite numbers: exit code 3
└── InterruptedRun           a signal, a stop file or the end of the job: exit code 85, to be resumed
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One thing wrong with the input: where, what (with the value and the bound), and the way out."""

    place: str
    problem: str
    way_out: str = ""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" + (f"; {self.way_out}" if self.way_out else "")


class HpctripError(Exception):
    """Base of all errors that hpctrip reports as one clear text."""

    exit_code = 1


class InputError(HpctripError):
    """Bad input. Holds every fault found, so that one report names them all.

    `InputError(place, problem, way_out)` for one fault, `InputError(faults=[...])` for several.
    """

    exit_code = 2

    def __init__(
        self, place: str = "", problem: str = "", way_out: str = "", *, faults: list[Fault] | None = None
    ):
        self.faults = list(faults) if faults is not None else [Fault(place, problem, way_out)]
        super().__init__("\n".join(str(fault) for fault in self.faults))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can be told from rank to rank with all its faults."""
        return partial(InputError, faults=self.faults), ()


class DivergedError(HpctripError):
    """An update is not finite, or too large for the fixed-point sum; names the site and the round."""

    exit_code = 3


class InterruptedRun(HpctripError):
    """The run left early and on request, after a checkpoint: exit code 85 asks a job script to start it again."""

    exit_code = 85
