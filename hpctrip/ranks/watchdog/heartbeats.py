"""The messages between the watchdogs of one job: datagrams that nobody else can forge, change, redirect or replay.

A packet is a message authentication code (keyed BLAKE2b, RFC 7693, under a random key of this job) and a body of
fixed length, which is looked at only where the code is right. The body names its sender, its addressee and a number
that grows with every packet of the sender: a packet that is older than the last one heard is no news, however it comes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import time
from dataclasses import dataclass

from hpctrip.ranks.phase import Phase

WORDS = ("beat", "stacks", "bye")
"""Sign of life; request to write the stacks, as the job ends; goodbye."""
KEY_BYTES = 32
_CODE_BYTES = 16
_BODY = struct.Struct(
    "!BIIQ16sq?d"
)  # word, sender, addressee, number; phase, its round, whether it waits, its age in s
PACKET_BYTES = _CODE_BYTES + _BODY.size


@dataclass(frozen=True, slots=True)
class Packet:
    """A message from a rank."""

    word: str
    rank: int
    phase: str
    round: int
    waits: bool
    age_s: float
    """Seconds that it had been in this phase when it sent the packet."""


class MessageAuthenticator:
    """Signs the packets of one rank and verifies those sent to it, under the key of its job."""

    def __init__(self, key: bytes, rank: int):
        """`key` [KEY_BYTES] is drawn anew for every job, and no rank closes packets with two of these."""
        self._key, self._rank = key, rank
        self._number = 0
        self._heard: dict[int, int] = {}

    def signed(self, word: str, to: int, phase: Phase) -> bytes:
        """The packet [PACKET_BYTES] that tells rank `to` this word and where this rank is. The name of a phase is cut
        to 16 bytes."""
        self._number += 1
        age_s = time.monotonic() - phase.since
        name = phase.name.encode()[:16]
        body = _BODY.pack(
            WORDS.index(word), self._rank, to, self._number, name, phase.round, phase.waits, age_s
        )
        return self._code(body) + body

    def verified(self, data: bytes) -> Packet | None:
        """What the packet says; None where it was not closed under this key for this rank, or is no news."""
        if len(data) != PACKET_BYTES:
            return None
        code, body = data[:_CODE_BYTES], data[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(body)):
            return None
        word, rank, to, number, phase, round, waits, age_s = _BODY.unpack(body)
        if to != self._rank or number <= self._heard.get(rank, 0) or word >= len(WORDS):
            return None
        self._heard[rank] = number
        return Packet(WORDS[word], rank, phase.rstrip(b"\0").decode(errors="replace"), round, waits, age_s)

    def _code(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_CODE_BYTES).digest()
