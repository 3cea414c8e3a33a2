"""The sockets of the watchdogs, and how they find each other's addresses."""

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
"""The environment variable that names the network interface between the machines, where the first guess is wrong."""
_LOOPBACK = "127.0.0.1"
_ELSEWHERE = "192.0.2.1"  # an address for documentation (RFC 5737): the way there is the way out
_SIOCGIFADDR = 0x8915

Address = tuple[str, int]


class HeartbeatSocket:
    """The socket of this rank's watchdog, on the address that the other ranks use. Creating one is collective.

    It listens on loopback where that is the same for all ranks, else on an address of this machine (see `candidates`);
    only where none is found, on all of them. Forged packets are dropped: see `MessageAuthenticator`.
    """

    def __init__(self, ranks: Ranks):
        self.rank = ranks.rank
        self.trouble = ""
        """Why nothing can be heard here; empty where all is well."""
        self._socket: socket.socket | None = None
        self._at: Address | None = None
        told = ranks.gather((hostname(), loopback_id())) or []
        # rank 0 finds its address first, as the others find theirs by the way to it
        other = next((name for name, loopback in told if loopback != loopback_id()), "")
        self.names, apart, key, first = ranks.decide_on_root(
            lambda: (
                [name for name, _ in told],
                bool(other),
                secrets.token_bytes(KEY_BYTES),
                self._open(other),
            )
        )
        """Machine of every rank."""
        if self.rank:
            towards = first[0] if first else ""
            self._open((towards or self.names[0]) if apart else "")
        everyone = ranks.gather(self._at)
        self._addresses = [
            address and _resolved(name, address)
            for name, address in zip(self.names, ranks.decide_on_root(lambda: everyone), strict=True)
        ]
        self._authenticator = MessageAuthenticator(key, self.rank)

    def _open(self, other: str) -> Address | None:
        """Listen where another machine's ranks, or those of this one where none is named, reach this rank."""
        try:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self._at = _bound(self._socket, candidates(other) if other else [_LOOPBACK])
        except OSError as error:
            self.trouble = error.strerror or str(error)
        return self._at

    def reopen(self) -> None:
        """Listen again at the same place, after the socket has failed. Raises OSError where that cannot be."""
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
        """Send this word to these ranks, except this one."""
        for rank in to:
            if rank != self.rank and self._socket is not None and self._addresses[rank]:
                with suppress(
                    OSError
                ):  # whom it does not reach does not hear this rank, and that is noticed there
                    self._socket.sendto(self._authenticator.signed(word, rank, phase), self._addresses[rank])

    def receive(self, wait_s: float) -> Packet | None:
        """The next packet of another rank, within so many seconds; None if there was none, or a forged one.
        Raises OSError where the socket fails."""
        if self._socket is None or self._at is None:
            time.sleep(wait_s)
            return None
        self._socket.settimeout(wait_s)
        try:
            return self._authenticator.verified(
                self._socket.recv(PACKET_BYTES + 1)
            )  # of a longer one the rest is dropped
        except TimeoutError:
            return None

    @property
    def place(self) -> str:
        """Where it listens, for messages."""
        return self._at[0] if self._at else "nowhere"


def loopback_id() -> str:
    """Equal for two processes where 127.0.0.1 is the same place for both: one kernel, one network namespace."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # not Linux
        return hostname()


def candidates(other: str) -> Iterator[str]:
    """IPv4 addresses by which this machine may be reached from `other` (a name or an address), the best first.

    That of the interface $HPCTRIP_INTERFACE, which is then the only one; from which the way leads to `other`; what this
    machine's own name means; from which the way leads out; at last "", which is all of them. Loopback addresses say
    nothing: Debian maps a machine's own name to 127.0.1.1. Raises OSError where the interface has no address.
    """
    if name := os.environ.get(INTERFACE):
        yield _address_of(name)
        return
    for find in (
        lambda: _way_to(other),
        lambda: socket.gethostbyname(hostname()),
        lambda: _way_to(_ELSEWHERE),
    ):
        with suppress(OSError, UnicodeError):  # the latter from names that no network knows
            address = find()
            if not address.startswith("127."):
                yield address
    yield ""


def _bound(one: socket.socket, addresses: Iterable[str]) -> Address:
    """Bind to the first of these that is this machine's. Raises OSError where none is."""
    error = OSError(0, "no address")
    for address in addresses:
        try:
            one.bind((address, 0))
            return address, one.getsockname()[1]
        except OSError as failure:
            error = failure
    raise error


def _way_to(place: str) -> str:
    """The address from which packets leave for there. Nothing is sent: connecting here only asks for the way."""
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


def _resolved(name: str, address: Address) -> Address | None:
    """Where to send: a rank that listens everywhere is found by its machine's name, if at all."""
    host, port = address
    try:
        return host or socket.gethostbyname(name), port
    except (OSError, UnicodeError):
        return None
