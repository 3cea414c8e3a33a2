"""Ends a job when a rank hangs, with a report that names the rank.

A thread in every rank sends heartbeats, datagrams with the rank's phase, its round and whether it is only waiting for
others: hosts to rank 0, rank 0 to all. It detects three faults, each with a limit:

* a rank is busy with one phase for too long, which its own thread detects: a hung GPU, a dead file system;
* a rank is silent, which rank 0 detects for the hosts and the hosts for rank 0: stopped, swapped out, machine down. MPI
  does not report this: a collective just never completes;
* all ranks wait at the same time: a lost message.

Heartbeats do not use MPI, as an MPI call could wait for the rank in question, and only the main thread may make one. If
a firewall drops all datagrams, no rank counts as silent; the watchdog warns that it receives none, and only waiting too
long is a fault. Neither a datagram nor an error of its own ends the thread.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.ranks.base import Phase, Ranks
from hpctrip.ranks.watchdog.heartbeat_socket import INTERFACE, HeartbeatSocket, Packet

STACKS_S = 1.0
"""Seconds between the report and the end of the job, in which all ranks write their stacks to the log."""
LEAVES_S = 10.0
"""Seconds after which a rank ends by itself when the job ends and the launcher has not killed it."""
UNHEARD_PATIENCE = 4
"""Factor on the limits of waiting while a rank has never been heard: it may be at work."""
BEATS = 10
"""Heartbeats sent within the limit of silence; this many are not lost by chance."""


class Limits(Component):
    """Time limits after which a rank counts as stuck and the job ends; nothing here changes a result."""

    enabled: bool = True
    """Whether ranks watch each other."""
    silent_s: Seconds = Field(60.0, ge=1)
    """Longest time without a heartbeat of a rank (stopped, swapped out, machine down)."""
    limit_s: Seconds = Field(1800.0, ge=0.1)
    """Longest time in one phase; the keys below override it for one phase."""
    start_s: Seconds | None = Field(None, ge=0.1)
    """Preparing data and model."""
    train_s: Seconds | None = Field(None, ge=0.1)
    """Training one block of sites."""
    exchange_s: Seconds | None = Field(None, ge=0.1)
    """Applying the summed update."""
    evaluate_s: Seconds | None = Field(None, ge=0.1)
    """Evaluating a rank's share of the held-out data."""
    record_s: Seconds | None = Field(None, ge=0.1)
    """Planning a round; writing the results file and a checkpoint."""

    def busy_s(self, phase: str) -> float:
        """The limit of one phase."""
        return getattr(self, f"{phase}_s", None) or self.limit_s


@dataclass(frozen=True)
class Beat:
    """The last heartbeat of a rank."""

    phase: Phase
    heard: float
    """When it arrived, on the clock of this rank like the phase."""

    def text(self, now: float) -> str:
        """The phase and its length, for messages."""
        phase = self.phase
        doing = "waiting for others in" if phase.waits else "busy with"
        return f"{doing} {phase.name} of round {phase.round} for {now - phase.since:.0f} s"


def verdict(
    rank: int, size: int, beats: Mapping[int, Beat], now: float, limits: Limits
) -> tuple[str, list[int]]:
    """Diagnose the job as seen by rank `rank`: (problem, ranks at fault), or ("", []) if there is none.

    `beats` holds the rank's own phase and the last heartbeat of each rank that it has heard. Ranks that were never
    heard are at fault only if all others wait.
    """
    mine = beats[rank].phase
    limit_s = limits.busy_s(mine.name)
    if not mine.waits and now - mine.since > limit_s:
        return f"{beats[rank].text(now)} (limit {limit_s:g} s)", [rank]
    # rank 0 watches all, the others watch rank 0; higher ranks wait a little longer, so that only one of them reports
    watched = {r: beat for r, beat in beats.items() if r != rank and (rank == 0 or r == 0)}
    silent_s = limits.silent_s + (0.1 * limits.silent_s * (rank - 1) if rank else 0.0)
    silent = [r for r, beat in watched.items() if now - beat.heard > silent_s]
    if silent:
        return f"silent for more than {limits.silent_s:g} s", sorted(silent)
    unheard = [r for r in (range(1, size) if rank == 0 else range(1)) if r not in beats]
    limit_s *= UNHEARD_PATIENCE if unheard else 1
    waits_s = now - max(beat.phase.since for beat in beats.values())
    if all(beat.phase.waits for beat in beats.values()) and (rank == 0 or unheard) and waits_s > limit_s:
        return f"every rank heard of waits, for {waits_s:.0f} s (limit {limit_s:g} s)", unheard or sorted(
            beats
        )
    return "", []


class Watchdog:
    """The watchdog thread of this rank. A context that watches from entry to exit; entering it is a collective."""

    def __init__(self, ranks: Ranks, limits: Limits, end: Callable[[int], None] = os._exit):
        """`end(code)` ends the whole job at once, from any thread."""
        self._ranks, self._limits, self._end = ranks, limits, end
        self._peers = range(1, ranks.size) if ranks.rank == 0 else range(1)
        """The ranks that this one watches and to which it sends heartbeats."""
        self._beats: dict[int, Beat] = {}
        self._stop = threading.Event()
        self._ends = math.inf  # when this rank ends by itself, after another one has reported
        self._warned: set[str] = set()
        self._heard: set[int] = set()
        self._beat_s = min(1.0, limits.silent_s / BEATS)

    def __enter__(self) -> Watchdog:
        if not faulthandler.is_enabled():
            with contextlib.suppress(OSError, RuntimeError):  # a stderr that is no file, or none
                faulthandler.enable()  # a crash in C code shows its stacks too
        self._socket = HeartbeatSocket(self._ranks)
        if self._socket.trouble:
            self._warn_once(f"cannot hear the others: {self._socket.trouble}")
        self._began = self._checked = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads for this user
            self._warn_once(f"cannot watch: {error}")
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._socket.wake()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.send("bye", range(self._ranks.size), self._ranks.phase)
        self._socket.close()

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._check()
            except Exception as error:
                # continue after any error; meanwhile this rank neither accuses others nor is accused
                self._warn_once(f"had a fault and watches on: {type(error).__name__}: {error}")
                self._beats.clear()
                with contextlib.suppress(Exception):
                    self._socket.send("bye", self._peers, Phase())
                self._stop.wait(self._beat_s)

    def _check(self) -> None:
        """Send a heartbeat, receive those of the others, and end the job if a rank is stuck."""
        rank, size, phase = self._ranks.rank, self._ranks.size, self._ranks.phase
        self._socket.send("beat", self._peers, phase)
        self._listen(until=time.monotonic() + self._beat_s)
        now = time.monotonic()
        # this rank itself has slept: heartbeats are old for that reason
        if now - self._checked > self._limits.silent_s / 2:
            self._beats = {r: Beat(replace(b.phase, since=now), now) for r, b in self._beats.items()}
            phase.since = now
        self._checked = now
        self._beats[rank] = Beat(replace(phase), now)
        if now - self._began > self._limits.silent_s:
            self._warn_of_unheard()
        problem, blamed = verdict(rank, size, self._beats, now, self._limits)
        if now > self._ends:
            self._end(1)
        elif problem and self._ends == math.inf and not self._stop.is_set():
            self._abort_with_report(problem, blamed, now)

    def _listen(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0 and not self._stop.is_set():
            try:
                packet = self._socket.receive(min(left_s, 0.2))
            except OSError as error:
                self._warn_once(f"cannot hear the others: {error.strerror or error}")
                self._beats.clear()  # heartbeats of this time are lost, so no rank counts as silent
                self._stop.wait(left_s)
                with contextlib.suppress(OSError):
                    self._socket.reopen()
                continue
            if packet:
                self._hear(packet)

    def _hear(self, packet: Packet) -> None:
        self._heard.add(packet.rank)
        if packet.word == "stacks":
            self._ends = time.monotonic() + LEAVES_S
            self._stacks()
        elif packet.word == "bye":
            self._beats.pop(packet.rank, None)
        else:
            self._beats[packet.rank] = Beat(packet.phase, time.monotonic())

    def _warn_of_unheard(self) -> None:
        """Warn about ranks that this one has never heard."""
        missed = [self._name(rank) for rank in self._peers if rank not in self._heard | {self._ranks.rank}]
        if missed and not self._socket.trouble:
            self._warn_once(
                f"has never heard: {', '.join(missed)}, listening on {self._socket.place} (a firewall, or another "
                f"network is meant: {INTERFACE}=NAME); if one of them stops, that is noticed late"
            )

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._socket.names[rank]}"

    def _warn_once(self, text: str) -> None:
        """Print a warning `what: details` of this watchdog, once for each `what`."""
        what = text.partition(":")[0]
        if what not in self._warned:
            self._warned.add(what)
            _write(f"hpctrip: watchdog of {self._name(self._ranks.rank)} {text}")

    def _stacks(self) -> None:
        """Print the stacks of this rank's threads, with the rank in every line."""
        rank = self._ranks.rank
        lines = [f"hpctrip: stacks of {self._name(rank)}, the innermost call first"]
        lines += [f"hpctrip:   rank {rank}: {line}" for line in _stack_lines()]
        _write("\n".join(lines))

    def _abort_with_report(self, problem: str, blamed: list[int], now: float) -> None:
        lines = [f"hpctrip: watchdog of rank {self._ranks.rank}: the job is stuck and ends now: {problem}"]
        for rank in blamed:
            beat = self._beats.get(rank)
            last = f"last heard {now - beat.heard:.0f} s ago, {beat.text(now)}" if beat else "never heard"
            lines.append(f"hpctrip:   stuck: {self._name(rank)}: {last}")
        for rank, beat in sorted(self._beats.items()):
            if rank not in blamed:
                lines.append(f"hpctrip:   {self._name(rank)}: {beat.text(now)}")
        lines.append("hpctrip:   (limits: table [watchdog] of the input)")
        try:
            _write("\n".join(lines))
            self._socket.send("stacks", range(self._ranks.size), self._ranks.phase)
            self._stacks()
            time.sleep(STACKS_S)
        finally:
            self._end(1)


def _write(text: str) -> None:
    """Write lines to stderr in one call: launchers mix the output of ranks, even within a line."""
    with contextlib.suppress(Exception):  # a stderr that is no file, or is gone
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def _stack_lines() -> Iterator[str]:
    """The stack of each thread of this process. It reads no source files, as the file system may hang."""
    main = threading.main_thread().ident
    for thread, innermost in sys._current_frames().items():
        yield "main thread" if thread == main else f"thread {thread}"
        for frame, line in traceback.walk_stack(innermost):
            yield f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}'
