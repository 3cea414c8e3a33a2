"""Runs the parts one after another, each in a process of its own, in the time that there is.

A part that raises, crashes, runs out of memory or hangs ends alone: what it has told so far is kept, and the next one
begins. The processes are forked from a server that has imported torch and never touched CUDA, so a part begins at once
and with a context of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from gpu.rows import Report, Row, Written

CLOSING_S = 5.0
"""Kept back for the summary."""
LEAVING_S = 10.0
"""A part that has told everything may take so long to end."""
MOST_TIMES = 2.5
"""A part may take so many times what it is expected to take before it counts as hanging, and at least LEAST_LIMIT_S."""
LEAST_LIMIT_S = 30.0


@dataclass(frozen=True)
class Setting:
    """What every part is told."""

    device: str
    """"cuda" or "cpu"."""
    small: bool
    """Only to see that the part works: the least of everything."""
    folder: str
    """An empty folder of the part's own for whatever it writes; gone afterwards."""
    out: str
    """The folder of the results."""


@dataclass(frozen=True)
class Part:
    """One thing to be shown or measured."""

    name: str
    function: str
    """`module:function`; it is called with (Setting, Report, **arguments)."""
    seconds: float
    """What it is expected to take on one H100."""
    purpose: str
    """What it shows, for the reader of the help."""
    arguments: tuple[tuple[str, object], ...] = ()
    needs: tuple[str, ...] = ()
    """Modules that are to be there besides those that every part needs."""
    programs: tuple[str, ...] = ()
    """Programs that are to be on the path."""
    needs_gpu: tuple[str, ...] = ()
    """Modules that it needs on a GPU, and not in a dry run."""


class Conductor:
    """Runs parts until `deadline` (of time.monotonic)."""

    def __init__(self, written: Written, deadline: float, imported: Iterable[str] = ()):
        self.written, self.deadline = written, deadline
        self.context = multiprocessing.get_context("forkserver")
        # The server's path is that of its environment, not ours (Python 3.12 and before).
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        self.context.set_forkserver_preload(list(imported))

    def left_s(self) -> float:
        """Seconds left for parts."""
        return self.deadline - CLOSING_S - time.monotonic()

    def run(self, part: Part, setting: Setting) -> str:
        """Run one part to whatever end; that end in words, beginning with "done" where it was a good one."""
        if self.left_s() < (1.0 if setting.small else part.seconds):
            return f"left out: it takes about {part.seconds:.0f} s, {max(0, self.left_s()):.0f} s are left"
        limit_s = self.left_s()
        if not setting.small:  # the seconds are those of a GPU in earnest
            limit_s = min(limit_s, max(LEAST_LIMIT_S, MOST_TIMES * part.seconds))
        receiver, sender = self.context.Pipe(duplex=False)
        process = self.context.Process(target=play, args=(part, setting, sender), daemon=False)
        process.start()
        sender.close()
        try:
            told = self._listen(receiver, time.monotonic() + limit_s)
            if told is None:
                return f"stopped: not through after {limit_s:.0f} s"
            process.join(LEAVING_S)
            if told:
                return told
            return f"crashed: {_cause(process.exitcode)}"
        finally:
            _kill_all(process)
            process.join()
            receiver.close()

    def _listen(self, receiver: Connection, until: float) -> str | None:
        """Take rows until the part says how it ended; "" where it ended without a word, None where time is over."""
        while receiver.poll(max(0.0, until - time.monotonic())):
            try:
                message = receiver.recv()
            except Exception:  # the end of the pipe, or a message torn by the sender's death
                return ""
            if isinstance(message, str):
                return message
            self.written.take(message)
        return None


def play(part: Part, setting: Setting, sender: Connection) -> None:
    """In the part's own process: run it, send its rows, then how it ended. Its output goes to log.txt."""
    os.setsid()  # so that it ends with whatever it has started
    log = os.open(Path(setting.out) / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (1, 2):
        os.dup2(log, stream)
    print(f"\n== {part.name}", flush=True)
    ending = "done"
    try:
        module, _, function = part.function.partition(":")
        report = Report(sender.send, part=part.name)
        getattr(importlib.import_module(module), function)(setting, report, **dict(part.arguments))
    except BaseException as error:
        traceback.print_exc()
        ending = f"failed: {type(error).__name__}: {first_line(error)}"
    sys.stdout.flush()
    sender.send(ending)
    sender.close()


def _kill_all(process: BaseProcess) -> None:
    """SIGKILL to a part and to all that it has started, gone or not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).strip().splitlines() or [""])[0][:300]


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


def ending_row(part: Part, ending: str, seconds: float) -> Row:
    """How a part ended and what it took, as a row."""
    return Row("part_wall_s", seconds, part=part.name, note=ending)
