"""The exceptions of hpctrip.

HpctripError                 anything that hpctrip itself reports; one clear text, no traceback needed
├── InputError               the user's input is wrong: exit code 2
├── DivergedError            training left the finite numbers: exit code 3
├── InterruptedRun           a signal, a stop file or the end of the job: exit code 85, to be resumed
└── UnsavedRun               the same, but its rounds are in no checkpoint: exit code 143
"""

from __future__ import annotations

import importlib.util
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from hpctrip.base.text import printable, screenful


@dataclass(frozen=True)
class Fault:
    """One fault of the input: the place, the problem (with the value and the bound), and a hint. As text it is one
    line, shortened and escaped."""

    place: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f"; {printable(self.hint, 500)}" if self.hint else ""
        return f"{printable(self.place, 500)}: {printable(self.problem, 600)}{hint}"


def cause(error: BaseException) -> str:
    """An exception of other code in one line."""
    try:
        text = str(error)
    except Exception:  # a plug-in's exception may fail there
        text = "no text"
    return printable(" ".join(f"{type(error).__name__}: {text}".split()))


class HpctripError(Exception):
    """Base of all errors that hpctrip reports as one clear text, without a traceback."""

    exit_code = 1
    agreed = False
    """Whether all ranks end with it, because rank 0 raised it in a collective: then none has to end the others."""


class InputError(HpctripError):
    """Bad input. Holds all faults, so that one report names them.

    `InputError(place, problem, hint)` for one fault, `InputError(faults=[...])` for several.
    """

    exit_code = 2

    def __init__(
        self, place: str = "", problem: str = "", hint: str = "", *, faults: list[Fault] | None = None
    ):
        self.faults = list(faults) if faults is not None else [Fault(place, problem, hint)]
        super().__init__("\n".join(screenful([str(fault) for fault in self.faults])))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all faults, to be sent from rank to rank."""
        return partial(InputError, faults=self.faults), ()


class DivergedError(HpctripError):
    """An update is not finite, or too large for the fixed-point sum; names the site and the round."""

    exit_code = 3


class InterruptedRun(HpctripError):
    """The run stopped early on request, after a checkpoint: exit code 85 asks a job script to start it again."""

    exit_code = 85


class UnsavedRun(HpctripError):
    """The run stopped early on request, without a checkpoint of its last rounds: to start it again would train them
    again, so a job script must not."""

    exit_code = 143


FAULT_EXIT_CODE = 70
"""Any other exception is a fault of hpctrip: EX_SOFTWARE of sysexits.h."""
REPORT_FAULT = "a bug in hpctrip: please report it with the traceback"
PLUGIN_MODULE = "hpctrip_plugin_"
"""Beginning of the names of the modules that plug-ins become."""

EXIT_CODES = {
    0: "done",
    HpctripError.exit_code: "failed; for diff: the runs differ; for verify: a file could not be replayed",
    InputError.exit_code: "bad input, one line per error; an error in a plug-in; for verify: a file is wrong",
    DivergedError.exit_code: "training diverged",
    15: "ended by SIGTERM before Python ran: the code of MPICH's mpirun",
    FAULT_EXIT_CODE: "a bug in hpctrip, with a traceback: please report it",
    InterruptedRun.exit_code: "interrupted after a checkpoint: `hpctrip resume` continues",
    130: "ended immediately by Ctrl-C; by the second one while training",
    UnsavedRun.exit_code: "interrupted without a checkpoint of its last rounds (`checkpoint.enabled = false`)",
}
"""Meaning of a command's exit code."""


def blame(error: BaseException) -> tuple[str, int]:
    """(last line of its report, exit code) of an exception: what hpctrip reports itself is its own text, any other one
    comes from the plug-in that was running, or else is a fault of hpctrip."""
    if isinstance(error, HpctripError):
        return str(error), error.exit_code
    if own := _of_plugins(error):
        code, line = own[-1][0].f_code, own[-1][1]
        return f"{code.co_filename}, line {line}, in {code.co_qualname}: {cause(error)}", InputError.exit_code
    return REPORT_FAULT, FAULT_EXIT_CODE


def full_report(error: BaseException) -> str:
    """The traceback of an exception and the last line of its report (`blame`). If a plug-in raised it, only the lines
    of plug-ins are in the traceback."""
    if own := _of_plugins(error):
        frames = traceback.StackSummary.extract(iter(own)).format()
        trace = "".join(["Traceback of the plug-in (most recent call last):\n", *frames])
    else:
        trace = "".join(traceback.format_exception(error))
    return f"{trace}hpctrip: {blame(error)[0]}"


def _of_plugins(error: BaseException) -> list[tuple[FrameType, int]]:
    """The frames of the traceback that are code of plug-ins, with their lines."""
    return [
        (frame, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").startswith(PLUGIN_MODULE)
    ]


@contextmanager
def faults_at(place: str) -> Iterator[None]:
    """Prefix the places of the faults that the body raises."""
    try:
        yield
    except InputError as error:
        faults = [
            replace(fault, place=": ".join(filter(None, (place, fault.place)))) for fault in error.faults
        ]
        raise InputError(faults=faults) from None


@contextmanager
def as_in_python() -> Iterator[None]:
    """Let the hints of the body's faults name arguments of Python instead of options of the command line."""
    try:
        yield
    except InputError as error:
        names = {"--overwrite": "overwrite=True", "--out": "out"}
        faults = [
            replace(fault, hint=re.sub("--overwrite|--out", lambda option: names[option[0]], fault.hint))
            for fault in error.faults
        ]
        raise InputError(faults=faults) from None


def how_to_install(extra: str) -> str:
    """The command that installs an extra of setup.py: from the checkout, or from the package index."""
    is_checkout = Path(__file__).parents[2].joinpath("setup.py").is_file()
    return f"pip install -e '.[{extra}]'" if is_checkout else f"pip install 'hpctrip[{extra}]'"


def require(place: str, extra: str, *packages: str) -> None:
    """Raise InputError at `place` where one of these packages of an extra is not installed."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(place, f"{' and '.join(missing)} not installed", how_to_install(extra))
