"""The exceptions of hpctrip.

HpctripError                 anything that hpctrip itself reports; one clear text, no traceback needed
├── InputError               the user's input is wrong: exit code 2
├── DivergedError            training left the finite numbers: exit code 3
└── InterruptedRun           a signal, a stop file or the end of the job: exit code 85, to be resumed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hpctrip.base.text import printable

REPORT_BYTES = 3500
"""A report ends after so many bytes and says how many faults it leaves out: it is read on a screen."""


@dataclass(frozen=True)
class Fault:
    """One thing wrong with the input: where, what (with the value and the bound), and the way out. As a text it is one
    line, cut and escaped: all three may quote a stranger's file."""

    place: str
    problem: str
    way_out: str = ""

    def __str__(self) -> str:
        way_out = f"; {printable(self.way_out, 500)}" if self.way_out else ""
        return f"{printable(self.place, 500)}: {printable(self.problem, 600)}{way_out}"


def cause(error: BaseException) -> str:
    """Somebody else's exception in one line."""
    try:
        text = str(error)
    except Exception:  # an integer of thousands of digits among its arguments, or a fault of its own
        text = "no text"
    return printable(" ".join(f"{type(error).__name__}: {text}".split()))


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
        super().__init__("\n".join(_report(self.faults)))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it can be told from rank to rank with all its faults."""
        return partial(InputError, faults=self.faults), ()


def _report(faults: list[Fault]) -> Iterable[str]:
    """A line for each fault, up to REPORT_BYTES, and how many more there are."""
    left = REPORT_BYTES
    for number, fault in enumerate(faults):
        data = str(fault).encode()
        line = data[:REPORT_BYTES].decode(errors="ignore")
        left -= len(data)
        if number and left < 0:
            yield f"and {len(faults) - number:,} more"
            return
        yield line


class DivergedError(HpctripError):
    """An update is not finite, or too large for the fixed-point sum; names the site and the round."""

    exit_code = 3


class InterruptedRun(HpctripError):
    """The run left early and on request, after a checkpoint: exit code 85 asks a job script to start it again."""

    exit_code = 85


FAULT_EXIT_CODE = 70
"""Any other exception is a fault of hpctrip: EX_SOFTWARE of sysexits.h."""
REPORT_FAULT = (
    "a fault of hpctrip, or of a plug-in if the traceback ends there: please report it with the traceback"
)

EXIT_CODES = {
    0: "done",
    HpctripError.exit_code: "failed; for diff: the runs differ",
    InputError.exit_code: "bad input, one line for each fault; for verify: a file is wrong",
    DivergedError.exit_code: "training diverged",
    FAULT_EXIT_CODE: "a fault of hpctrip, with a traceback: please report it",
    InterruptedRun.exit_code: "interrupted after a checkpoint: `hpctrip resume` goes on",
    130: "ended at once by Ctrl-C: the second one, where a run was training",
}
"""What the exit code of a command says."""


@contextmanager
def faults_at(place: str) -> Iterator[None]:
    """The faults of the body are at this place, and there where they say."""
    try:
        yield
    except InputError as error:
        faults = [
            replace(fault, place=": ".join(filter(None, (place, fault.place)))) for fault in error.faults
        ]
        raise InputError(faults=faults) from None
