"""Authenticated datagrams between the watchdogs of one job, and the discovery of their addresses.

Others can neither forge, change, redirect nor replay a packet. It is a message authentication code (keyed BLAKE2b, RFC
7693, with a random key of the job) and a body of fixed length, which is parsed only if the code is valid. The body
holds sender, recipient and a sequence number; a packet with a number not above the last one received from its sender
is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hpctrip.ranks.base import Phase, Ranks, hostname

INTERFACE = "HPCTRIP_INTERFACE"
"""Environment variable with the name of the network interface between the machines, where detection fails."""
_LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"  # a documentation address (RFC 5737), routed like any address outside
_SIOCGIFADDR = 0x8915

Address = tuple[str, int]
WORDS = ("beat", "stacks", "bye")
"""Heartbeat; request to write the stacks before the job ends; end of watching."""
KEY_BYTES = 32
_CODE_BYTES = 16
# word, sender, recipient, number; phase, its round, whether it waits, its age in s
_BODY = struct.Struct("!BIIQ16sq?d")
PACKET_BYTES = _CODE_BYTES + _BODY.size


class Packet(NamedTuple):
    """A message from a rank."""

    word: str
    rank: int
    phase: Phase
    """The sender's phase, with times on the clock of the receiver, as if the packet had taken no time."""


class MessageAuthenticator:
    """Signs the packets of one rank and verifies those sent to it, under the key of its job."""

    def __init__(self, key: bytes, rank: int):
        """`key` [KEY_BYTES] is drawn at random for every job. A rank uses a single instance, as numbers must not
        repeat."""
        self._key, self._rank = key, rank
        self._number = 0
        self._heard: dict[int, int] = {}

    def signed(self, word: str, to: int, phase: Phase) -> bytes:
        """A packet [PACKET_BYTES] to rank `to` with this word and this rank's phase, whose name is cut to 16 bytes."""
        self._number += 1
        age_s = time.monotonic() - phase.since
        name = phase.name.encode()[:16]
        body = _BODY.pack(
            WORDS.index(word), self._rank, to, self._number, name, phase.round, phase.waits, age_s
        )
        return self._code(body) + body

    def verified(self, data: bytes) -> Packet | None:
        """Verify and parse a packet; None where its code, recipient, number or word is not valid."""
        if len(data) != PACKET_BYTES:
            return None
        code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(body)):
            return None
        word, rank, to, number, phase, round, waits, age_s = _BODY.unpack(body)
        if to != self._rank or number <= self._heard.get(rank, 0) or word >= len(WORDS):
            return None
        self._heard[rank] = number
        name = phase.rstrip(b"\0").decode(errors="replace")
        return Packet(WORDS[word], rank, Phase(name, round, waits, time.monotonic() - age_s))

    def _code(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_CODE_BYTES).digest()


class HeartbeatSocket:
    """The UDP socket of this rank's watchdog, at an address that the other ranks can reach. A collective creates it.

    It is bound to loopback if all ranks share it, else to an address of this machine (see `candidates`). Forged packets
    are dropped (see `MessageAuthenticator`).
    """

    def __init__(self, ranks: Ranks):
        self.rank = ranks.rank
        self.trouble = ""
        """Reason why nothing can be received; empty if there is none."""
        self._socket: socket.socket | None = None
        self._at: Address | None = None
        machines = ranks.gather((hostname(), loopback_id())) or []

        def begin() -> tuple[list[str], bytes, bool, Address | None]:
            other = next((name for name, loopback in machines if loopback != loopback_id()), "")
            key = secrets.token_bytes(KEY_BYTES)
            return [name for name, _ in machines], key, bool(other), self._open(other)

        # rank 0 chooses its address first: the others choose the one from which they reach it
        self.names, key, apart, first = ranks.decide_on_root(begin)
        """Name of every rank's machine."""
        if self.rank:
            towards = first[0] if first else ""
            self._open((towards or self.names[0]) if apart else "")
        everyone = ranks.gather(self._at)
        self._addresses = ranks.decide_on_root(lambda: everyone)
        self._authenticator = MessageAuthenticator(key, self.rank)

    def _open(self, other: str) -> Address | None:
        """Bind the socket so that the machine `other` reaches it, or to loopback where `other` is empty; returns the
        address, None on failure."""
        try:
            self._bind((address, 0) for address in (candidates(other) if other else [_LOOPBACK]))
        except OSError as error:
            self.trouble = error.strerror or str(error)
        return self._at

    def _bind(self, addresses: Iterable[Address]) -> None:
        """Replace the socket by a new one at the first address that this machine has. Raises OSError where it has
        none."""
        self.close()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        failure = OSError(0, "no address")
        for address in addresses:
            try:
                self._socket.bind(address)
                self._at = self._socket.getsockname()
                return
            except OSError as error:
                failure = error
        raise failure

    def reopen(self) -> None:
        """Replace a failed socket by a new one at the same address. Raises OSError where it cannot be bound."""
        if self._at is not None:
            self._bind([self._at])

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    def send(self, word: str, to: Iterable[int], phase: Phase) -> None:
        """Send a word and the current phase to these ranks, except this one. Errors are ignored."""
        for rank in to:
            if rank != self.rank and self._socket is not None and self._addresses[rank]:
                with suppress(OSError):  # a rank that it does not reach notices the silence itself
                    self._socket.sendto(self._authenticator.signed(word, rank, phase), self._addresses[rank])

    def receive(self, wait_s: float) -> Packet | None:
        """The next packet of another rank; None if none arrives within `wait_s`, or an invalid one. Raises OSError
        where the socket fails."""
        if self._socket is None or self._at is None:
            time.sleep(wait_s)
            return None
        self._socket.settimeout(wait_s)
        try:
            # a longer packet is truncated and then refused
            return self._authenticator.verified(self._socket.recv(PACKET_BYTES + 1))
        except TimeoutError:
            return None

    def wake(self) -> None:
        """End a `receive` of another thread, at once."""
        if self._socket is not None and self._at is not None:
            with suppress(OSError):
                self._socket.sendto(b"", self._at)

    @property
    def place(self) -> str:
        """The address that it listens on, for messages."""
        return self._at[0] if self._at else "nowhere"


def loopback_id() -> str:
    """An identifier that two processes share if 127.0.0.1 is the same for both: one kernel, one network namespace."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # not Linux
        return hostname()


def candidates(other: str) -> Iterator[str]:
    """IPv4 addresses at which `other` (a name or an address) may reach this machine, the best first.

    If $HPCTRIP_INTERFACE is set, only the address of that interface. Otherwise the source address towards `other`, the
    address of this machine's name, and the source address towards the outside. Loopback addresses are skipped: Debian
    maps a machine's own name to 127.0.1.1. Raises OSError where the interface has no address.
    """
    if name := os.environ.get(INTERFACE):
        yield _address_of(name)
        return
    for find in (
        lambda: _address_towards(other),
        lambda: socket.gethostbyname(hostname()),
        lambda: _address_towards(_ELSEWHERE),
    ):
        with suppress(OSError, UnicodeError):  # the latter from names that no network knows
            address = find()
            if not address.startswith("127."):
                yield address


def _address_towards(place: str) -> str:
    """The source address of packets to `place`. Nothing is sent: connecting a UDP socket only looks up the route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((place, 9))
        return probe.getsockname()[0]


def _address_of(interface: str) -> str:
    """The IPv4 address of a network interface of this machine. Raises OSError where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", os.fsencode(interface)[:15]))
        except OSError as error:
            raise OSError(error.errno, f"{INTERFACE}={interface}: {error.strerror}") from None
    return socket.inet_ntoa(answer[20:24])
