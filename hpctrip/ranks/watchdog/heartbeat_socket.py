"""UDP sockets of the watchdogs, and the discovery of their addresses."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hpctrip.ranks.base import Ranks, hostname
from hpctrip.ranks.phase import Phase
from hpctrip.ranks.watchdog.heartbeats import KEY_BYTES, PACKET_BYTES, MessageAuthenticator, Packet

INTERFACE = "HPCTRIP_INTERFACE"
"""Environment variable with the name of the network interface between the machines, where detection fails."""
_LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"  # a documentation address (RFC 5737), routed like any address outside
_SIOCGIFADDR = 0x8915

Address = tuple[str, int]


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
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._at = _bound(self._socket, candidates(other) if other else [_LOOPBACK])
        except OSError as error:
            self.trouble = error.strerror or str(error)
        return self._at

    def reopen(self) -> None:
        """Replace a failed socket by a new one at the same address. Raises OSError where it cannot be bound."""
        if self._at is not None:
            if self._socket is not None:
                self._socket.close()
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._socket.bind(self._at)

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


def _bound(sock: socket.socket, addresses: Iterable[str]) -> Address:
    """Bind to the first address that this machine has; returns it with the port. Raises OSError where it has none."""
    error = OSError(0, "no address")
    for address in addresses:
        try:
            sock.bind((address, 0))
            return address, sock.getsockname()[1]
        except OSError as failure:
            error = failure
    raise error


def _address_towards(place: str) -> str:
    """The source address of packets to `place`. Nothing is sent: connecting a UDP socket only looks up the route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((place, 9))
        return probe.getsockname()[0]


def _address_of(interface: str) -> str:
    """The IPv4 address of a network interface of this machine. Raises OSError where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError as error:
            raise OSError(error.errno, f"{INTERFACE}={interface}: {error.strerror}") from None
    return socket.inet_ntoa(answer[20:24])
