"""Ends a job whose ranks hang: every rank reports its phase to the others, and one that sees another stuck names it.

A thread per rank sends a datagram ("beat") with the rank's phase, round and whether it only waits for others: hosts to
rank 0, rank 0 to all. Three things are wrong, and each has its limit:

* a rank is busy with one phase for too long (its own thread sees it: training on a hung GPU, a dead file system);
* a rank falls silent (rank 0 sees it of the hosts, the hosts of rank 0: stopped, swapped out, its machine gone). MPI
  cannot tell: a collective only never completes;
* all ranks wait at once (a lost message).

Datagrams, not MPI: no call of MPI may wait for the rank in question, and only the main thread may call it. Where a
firewall drops them nobody is ever heard, nobody is accused of silence, and waiting too long is the fault instead; the
watchdog that hears nobody says so. Nothing that arrives, and no fault of its own, ends the thread.
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
from dataclasses import dataclass
from types import TracebackType

from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.config.component import Component
from hpctrip.ranks.base import Ranks, hostname
from hpctrip.ranks.phase import Phase, current_phase
from hpctrip.ranks.watchdog.heartbeat_socket import INTERFACE, HeartbeatSocket
from hpctrip.ranks.watchdog.heartbeats import Packet

STACKS_S = 1.0
"""Time from the verdict to the end of the job, in which every rank's stacks reach the log."""
LEAVES_S = 10.0
"""A rank that hears of the end and is not killed ends by itself after so long: the launcher may be gone."""
UNHEARD_PATIENCE = 4
"""A rank whose beats never arrived may be at work: a wait for it lasts this many times longer before it counts."""
BEATS = 10
"""Beats within the limit of silence: so many lost datagrams in a row are not chance."""


class Limits(Component):
    """After how long a rank counts as stuck, which ends the job; nothing here changes a result."""

    enabled: bool = True
    """Watch at all."""
    silent_s: Seconds = Field(60.0, ge=1)
    """No sign of life of a rank (stopped, swapped out, its machine gone)."""
    limit_s: Seconds = Field(1800.0, ge=0.1)
    """A rank is busy with the same phase; the keys below override it for one phase."""
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
    """The last known phase of a rank, with times on the clock of the rank that heard it."""

    phase: str
    round: int
    waits: bool
    since: float
    heard: float

    def text(self, now: float) -> str:
        """A phrase for messages."""
        doing = "waiting for others in" if self.waits else "busy with"
        return f"{doing} {self.phase} of round {self.round} for {now - self.since:.0f} s"


def verdict(
    rank: int, size: int, known: Mapping[int, Beat], now: float, limits: Limits
) -> tuple[str, list[int]]:
    """The problem as rank `rank` sees it, and the ranks to blame; ("", []) if there is none.

    `known` holds its own place and the last beat of each rank it has heard. A rank that was never heard is blamed for
    nothing but a wait without end.
    """
    mine = known[rank]
    limit_s = limits.busy_s(mine.phase)
    if not mine.waits and now - mine.since > limit_s:
        return f"{mine.text(now)} (limit {limit_s:g} s)", [rank]
    # rank 0 watches all; the others watch rank 0, the higher ones a little later so that one of them speaks for all
    watched = {r: beat for r, beat in known.items() if r != rank and (rank == 0 or r == 0)}
    silent_s = limits.silent_s + (0.1 * limits.silent_s * (rank - 1) if rank else 0.0)
    silent = [r for r, beat in watched.items() if now - beat.heard > silent_s]
    if silent:
        return f"silent for more than {limits.silent_s:g} s", sorted(silent)
    unheard = [r for r in (range(1, size) if rank == 0 else range(1)) if r not in known]
    limit_s *= UNHEARD_PATIENCE if unheard else 1
    waits_s = now - max(beat.since for beat in known.values())
    if all(beat.waits for beat in known.values()) and (rank == 0 or unheard) and waits_s > limit_s:
        return f"every rank heard of waits, for {waits_s:.0f} s (limit {limit_s:g} s)", unheard or sorted(
            known
        )
    return "", []


class Watchdog:
    """The thread of this rank. A context: it watches from entry to exit. Entering is collective."""

    def __init__(self, ranks: Ranks, limits: Limits, end: Callable[[int], None] = os._exit):
        """`end(code)` ends the whole job at once, whatever this rank's main thread is doing."""
        self._ranks, self._limits, self._end = ranks, limits, end
        self._peers = range(1, ranks.size) if ranks.rank == 0 else range(1)
        """Who is watched by this rank, and told where it is."""
        self._known: dict[int, Beat] = {}
        self._stop = threading.Event()
        self._ends = math.inf  # when this rank ends by itself: another one has spoken for all
        self._said: set[str] = set()
        self._heard: set[int] = set()
        self._names = [hostname()]
        self._beat_s = min(1.0, limits.silent_s / BEATS)

    def __enter__(self) -> Watchdog:
        if not faulthandler.is_enabled():
            with contextlib.suppress(OSError, RuntimeError):  # a stderr that is no file, or none
                faulthandler.enable()  # a crash in C code shows its stacks too
        self._socket = HeartbeatSocket(self._ranks)
        self._names = self._socket.names
        if self._socket.trouble:
            self._say_once(f"cannot hear the others: {self._socket.trouble}")
        self._began = self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # no more threads for this user
            self._say_once(f"cannot watch: {error}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.send("bye", range(self._ranks.size), current_phase)
        self._socket.close()

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except Exception as error:
                # whatever it is, watching goes on; who does not watch must neither accuse nor be accused
                self._say_once(f"had a fault and watches on: {type(error).__name__}: {error}")
                self._known.clear()
                with contextlib.suppress(Exception):
                    self._socket.send("bye", self._peers, Phase())
                self._stop.wait(self._beat_s)

    def _look(self) -> None:
        """Say where this rank is, hear where the others are, and judge."""
        rank, size = self._ranks.rank, self._ranks.size
        self._socket.send("beat", self._peers, current_phase)
        self._listen(until=time.monotonic() + self._beat_s)
        now = time.monotonic()
        # it was this rank that slept: the beats lie in the past
        if now - self._looked > self._limits.silent_s / 2:
            self._known = {r: Beat(b.phase, b.round, b.waits, now, now) for r, b in self._known.items()}
            current_phase.since = now
        self._looked = now
        here = current_phase
        self._known[rank] = Beat(here.name, here.round, here.waits, here.since, now)
        if now - self._began > self._limits.silent_s:
            self._miss()
        problem, blamed = verdict(rank, size, self._known, now, self._limits)
        if now > self._ends:
            self._end(1)
        elif problem and self._ends == math.inf and not self._stop.is_set():
            self._abort_with_report(problem, blamed, now)

    def _listen(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0 and not self._stop.is_set():
            try:
                packet = self._socket.receive(min(left_s, 0.2))
            except OSError as error:
                self._say_once(f"cannot hear the others: {error.strerror or error}")
                self._known.clear()  # what they said meanwhile is lost: nobody is accused of silence
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
            self._known.pop(packet.rank, None)
        else:
            now = time.monotonic()
            since = now - packet.age_s
            self._known[packet.rank] = Beat(packet.phase, packet.round, packet.waits, since, now)

    def _miss(self) -> None:
        """Say whom this rank has never heard."""
        missed = [self._name(rank) for rank in self._peers if rank not in self._heard | {self._ranks.rank}]
        if missed and not self._socket.trouble:
            self._say_once(
                f"has never heard: {', '.join(missed)}, listening on {self._socket.place} (a firewall, or another "
                f"network is meant: {INTERFACE}=NAME); if one of them stops, that is noticed late"
            )

    def _name(self, rank: int) -> str:
        return f"rank {rank} on {self._names[rank]}"

    def _say_once(self, text: str) -> None:
        """Say `what: details` about this watchdog, unless that has been said with whatever details."""
        what = text.partition(":")[0]
        if what not in self._said:
            self._said.add(what)
            _write(f"hpctrip: watchdog of {self._name(self._ranks.rank)} {text}")

    def _stacks(self) -> None:
        """The stacks of this rank's threads, with the rank in every line."""
        rank = self._ranks.rank
        lines = [f"hpctrip: stacks of {self._name(rank)}, the innermost call first"]
        lines += [f"hpctrip:   rank {rank}: {line}" for line in _stack_lines()]
        _write("\n".join(lines))

    def _abort_with_report(self, problem: str, blamed: list[int], now: float) -> None:
        lines = [f"hpctrip: watchdog of rank {self._ranks.rank}: the job is stuck and ends now: {problem}"]
        for rank in blamed:
            last = (
                f"last heard {now - self._known[rank].heard:.0f} s ago"
                if rank in self._known
                else "never heard"
            )
            place = f", {self._known[rank].text(now)}" if rank in self._known else ""
            lines.append(f"hpctrip:   stuck: {self._name(rank)}: {last}{place}")
        for rank, beat in sorted(self._known.items()):
            if rank not in blamed:
                lines.append(f"hpctrip:   {self._name(rank)}: {beat.text(now)}")
        lines.append("hpctrip:   (limits: table [watchdog] of the input)")
        try:
            _write("\n".join(lines))
            self._socket.send("stacks", range(self._ranks.size), current_phase)
            self._stacks()
            time.sleep(STACKS_S)
        finally:
            self._end(1)


def _write(text: str) -> None:
    """Lines on stderr, in one piece: launchers mix what ranks write at the same time, within a line too."""
    with contextlib.suppress(Exception):  # a stderr that is no file, or is gone
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def _stack_lines() -> Iterator[str]:
    """Where each thread of this process is. Reads no source file: the disk may be what hangs."""
    main = threading.main_thread().ident
    for thread, innermost in sys._current_frames().items():
        yield "main thread" if thread == main else f"thread {thread}"
        for frame, line in traceback.walk_stack(innermost):
            yield f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}'
