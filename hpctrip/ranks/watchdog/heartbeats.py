"""Authenticated messages between the watchdogs of one job, which others can neither forge, change, redirect nor replay.

A packet is a message authentication code (keyed BLAKE2b, RFC 7693, with a random key of the job) and a body of fixed
length, which is parsed only if the code is valid. The body holds sender, recipient and a sequence number; a packet with
a number not above the last one received from its sender is dropped.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import time
from dataclasses import dataclass

from hpctrip.ranks.phase import Phase

WORDS = ("beat", "stacks", "bye")
"""Heartbeat; request to write the stacks before the job ends; end of watching."""
KEY_BYTES = 32
_CODE_BYTES = 16
# word, sender, recipient, number; phase, its round, whether it waits, its age in s
_BODY = struct.Struct("!BIIQ16sq?d")
PACKET_BYTES = _CODE_BYTES + _BODY.size


@dataclass(frozen=True, slots=True)
class Packet:
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
