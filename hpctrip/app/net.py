"""The last net under whatever reads input: a mistake of hpctrip's own that a stranger's file brings to light is one
line that names the file, and its traceback lies in a log.

It covers every command that trains nothing by itself (`Reader`; the runs of a study are made by
other processes), and the others up to the point where a run's parts are built. Whatever happens in a round is not input
any more: it shows its traceback.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from hpctrip.app.arguments import FileName
from hpctrip.base.errors import HpctripError, InputError, cause

OWN_FAULT = "a fault of hpctrip itself"
"""What the line says; the fuzz tests look for it."""
_EXPECTED = (HpctripError, click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)


@contextmanager
def reading() -> Iterator[None]:
    """Within the body (and the function that it decorates) only input is read: an exception that nobody foresaw
    becomes an InputError at the files that the command was given."""
    try:
        yield
    except _EXPECTED:
        raise
    except Exception as error:
        problem = f"cannot be read: {cause(error)}"
        raise InputError(_given(), problem, f"{OWN_FAULT}; please report it with {_logged(error)}") from None


class Reader(click.Command):
    """A command that trains nothing by itself."""

    def invoke(self, ctx: click.Context) -> Any:
        """Under the net."""
        with reading():
            return super().invoke(ctx)


def _given() -> str:
    """The files of the command line; where none is known as one, the whole line."""
    ctx = click.get_current_context(silent=True)
    names: list[str] = []
    for param in ctx.command.params if ctx else ():
        value = ctx.params.get(param.name) if isinstance(param.type, FileName) else None
        names += [value] if isinstance(value, str) else value or ()
    return ", ".join(names) or (shlex.join(sys.argv[1:]) if ctx else "the input")


def _logged(error: Exception) -> str:
    """Where the traceback lies."""
    try:
        file, path = tempfile.mkstemp(prefix=f"hpctrip-error-{os.getpid()}-", suffix=".txt")
        with open(file, "w", errors="backslashreplace") as log:
            log.writelines(traceback.format_exception(error))
    except (OSError, ValueError) as reason:
        return f"what led to it (no log could be written: {reason})"
    return path
