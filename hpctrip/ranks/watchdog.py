"""No hang, ever: every rank tells the others where it is, and whoever sees one stuck ends the job and names it.

A thread per rank sends a datagram ("beat") with the rank's phase, round and whether it only waits for others: hosts to
rank 0, rank 0 to all. Three things are wrong, and each has its limit:

* a rank is busy with one phase for too long (its own thread sees it: training on a hung GPU, a dead file system);
* a rank falls silent (rank 0 sees it of the hosts, the hosts of rank 0: stopped, swapped out, its machine gone). MPI
  cannot tell: a collective only never completes;
* all ranks wait at once (a lost message).

Datagrams, not MPI: no call of MPI may wait for the rank in question, and only the main thread may call it. Where a
firewall drops them nobody is ever heard, nobody is accused of silence, and waiting too long is the fault instead.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import secrets
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from pydantic import Field

from hpctrip.base.component import Component
from hpctrip.base.units import Seconds
from hpctrip.ranks.base import Ranks, hostname
from hpctrip.ranks.phase import current_phase

STACKS_S = 1.0
"""How long the job goes on after the verdict, so that every rank's stacks reach the log."""
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
    """A rank is busy with the same phase; the keys below say it of one phase."""
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
    """What is known of one rank: where it was and since when, on the clock of whoever heard it."""

    phase: str
    round: int
    waits: bool
    since: float
    heard: float

    def text(self, now: float) -> str:
        """In words."""
        doing = "waiting for others in" if self.waits else "busy with"
        return f"{doing} {self.phase} of round {self.round} for {now - self.since:.0f} s"


def verdict(
    rank: int, size: int, known: Mapping[int, Beat], now: float, limits: Limits
) -> tuple[str, list[int]]:
    """What is stuck as rank `rank` sees it, and which ranks are to blame; ("", []) where all is well.

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
        self._known: dict[int, Beat] = {}
        self._stop = threading.Event()
        self._told = False  # another rank has spoken for all
        self._names = [hostname()]
        self._addresses: list[tuple[str, int]] = []
        self._beat_s = min(1.0, limits.silent_s / BEATS)

    def __enter__(self) -> Watchdog:
        if not faulthandler.is_enabled():
            with contextlib.suppress(OSError, RuntimeError):  # a stderr that is no file, or none
                faulthandler.enable()  # a crash in C code shows its stacks too
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        ranks = self._ranks
        everyone = ranks.gather((hostname(), self._socket.getsockname()[1]))
        # the token keeps datagrams of strangers and of other jobs out
        everyone, self._token = ranks.lead(lambda: (everyone, secrets.token_hex(8)))
        self._names = [name for name, _ in everyone]
        self._addresses = [_address(name, port) for name, port in everyone]
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._tell("bye", range(self._ranks.size))
        self._socket.close()

    def _watch(self) -> None:
        rank, size = self._ranks.rank, self._ranks.size
        peers = range(1, size) if rank == 0 else range(1)
        looked = time.monotonic()
        while not self._stop.is_set():
            self._tell("beat", peers)
            self._listen(until=time.monotonic() + self._beat_s)
            now = time.monotonic()
            # it was this rank that slept: the beats lie in the past
            if now - looked > self._limits.silent_s / 2:
                self._known = {r: Beat(b.phase, b.round, b.waits, now, now) for r, b in self._known.items()}
                current_phase.since = now
            looked = now
            here = current_phase
            self._known[rank] = Beat(here.name, here.round, here.waits, here.since, now)
            problem, blamed = verdict(rank, size, self._known, now, self._limits)
            if problem and not self._told and not self._stop.is_set():
                self._bark(problem, blamed, now)

    def _tell(self, word: str, to: Iterable[int]) -> None:
        here, age_s = current_phase, time.monotonic() - current_phase.since
        message = [self._token, word, self._ranks.rank, here.name, here.round, here.waits, age_s]
        data = json.dumps(message).encode()
        for rank in to:
            if rank != self._ranks.rank:
                # an unreachable peer is not heard either, and that is noticed
                with contextlib.suppress(OSError):
                    self._socket.sendto(data, self._addresses[rank])

    def _listen(self, until: float) -> None:
        while (left_s := until - time.monotonic()) > 0 and not self._stop.is_set():
            self._socket.settimeout(min(left_s, 0.2))
            try:
                data, _ = self._socket.recvfrom(1024)
                token, word, rank, phase, round, waits, age_s = json.loads(data)
            except (TimeoutError, OSError, ValueError, TypeError):
                continue
            now = time.monotonic()
            if token != self._token:
                continue
            if word == "stacks":
                self._told = True
                self._stacks()
            elif word == "bye":
                self._known.pop(rank, None)
            else:
                self._known[rank] = Beat(phase, round, waits, now - age_s, now)

    def _stacks(self) -> None:
        """The stacks of this rank's threads on stderr: in one piece and with the rank in every line, because launchers
        mix what ranks write at the same time, within a line too."""
        rank = self._ranks.rank
        lines = [f"hpctrip: stacks of rank {rank} on {self._names[rank]}, the innermost call first"]
        lines += [f"hpctrip:   rank {rank}: {line}" for line in _stack_lines()]
        with contextlib.suppress(Exception):  # a stderr that is no file
            sys.stderr.flush()
            os.write(sys.stderr.fileno(), ("\n".join(lines) + "\n").encode())

    def _bark(self, problem: str, blamed: list[int], now: float) -> None:
        lines = [f"hpctrip: watchdog of rank {self._ranks.rank}: the job is stuck and ends now: {problem}"]
        for rank in blamed:
            last = (
                f"last heard {now - self._known[rank].heard:.0f} s ago"
                if rank in self._known
                else "never heard"
            )
            place = f", {self._known[rank].text(now)}" if rank in self._known else ""
            lines.append(f"hpctrip:   stuck: rank {rank} on {self._names[rank]}: {last}{place}")
        for rank, beat in sorted(self._known.items()):
            if rank not in blamed:
                lines.append(f"hpctrip:   rank {rank} on {self._names[rank]}: {beat.text(now)}")
        lines.append("hpctrip:   (limits: table [watchdog] of the input)")
        print("\n".join(lines), file=sys.stderr, flush=True)
        self._tell("stacks", range(self._ranks.size))
        self._stacks()
        time.sleep(STACKS_S)
        self._end(1)


def _stack_lines() -> Iterator[str]:
    """Where each thread of this process is. Reads no source file: the disk may be what hangs."""
    main = threading.main_thread().ident
    for thread, innermost in sys._current_frames().items():
        yield "main thread" if thread == main else f"thread {thread}"
        for frame, line in traceback.walk_stack(innermost):
            yield f'  File "{frame.f_code.co_filename}", line {line} in {frame.f_code.co_name}'


def _address(name: str, port: int) -> tuple[str, int]:
    """Where a rank's socket is, looked up once; ranks on this machine need no network."""
    try:
        return ("127.0.0.1" if name == hostname() else socket.gethostbyname(name), port)
    except OSError:
        return (name, port)
