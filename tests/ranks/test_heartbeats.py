"""Only datagrams with the job's key, for this rank and with a new number are accepted."""

import json
import threading
import time

import pytest

from hpctrip.ranks.base import Phase, Ranks
from hpctrip.ranks.watchdog.heartbeat_socket import (
    KEY_BYTES,
    PACKET_BYTES,
    HeartbeatSocket,
    MessageAuthenticator,
    Packet,
)

KEY = bytes(range(KEY_BYTES))
TRAINING = Phase("train", 7, True, time.monotonic() - 5)


@pytest.mark.parametrize("word", ["beat", "stacks", "bye"])
def test_a_packet_says_where_its_sender_is_and_since_when(word):
    heard = MessageAuthenticator(KEY, 0).verified(MessageAuthenticator(KEY, 3).signed(word, 0, TRAINING))
    assert heard == Packet(word, 3, Phase("train", 7, True, heard.phase.since))
    assert abs(heard.phase.since - TRAINING.since) < 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"[" * 1024, "nested JSON"),
        (bytes(PACKET_BYTES), "zeros"),
        (json.dumps(["", "stacks", 3, "train", 7, True, 5.0]).encode(), "what older watchdogs said"),
        (MessageAuthenticator(bytes(KEY_BYTES), 3).signed("beat", 0, TRAINING), "another job's key"),
        (MessageAuthenticator(KEY, 3).signed("beat", 0, TRAINING)[:-1], "one byte less"),
        (MessageAuthenticator(KEY, 3).signed("beat", 0, TRAINING) + b"\0", "one byte more"),
        (MessageAuthenticator(KEY, 3).signed("bye", 1, TRAINING), "for another rank"),
        (MessageAuthenticator(KEY, 0).signed("bye", 1, TRAINING), "our own, sent back"),
    ],
)
def test_nothing_else_is_believed(data, why):
    assert MessageAuthenticator(KEY, 0).verified(data) is None, why


def test_no_bit_of_a_packet_can_be_changed():
    sound, authenticator = (
        MessageAuthenticator(KEY, 3).signed("beat", 0, TRAINING),
        MessageAuthenticator(KEY, 0),
    )
    for bit in range(8 * len(sound)):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        assert authenticator.verified(bytes(changed)) is None
    assert authenticator.verified(sound)


def test_a_packet_is_heard_once_and_not_after_a_later_one_of_its_sender():
    sender, authenticator = MessageAuthenticator(KEY, 3), MessageAuthenticator(KEY, 0)
    first, second, third = (sender.signed("beat", 0, TRAINING) for _ in range(3))
    assert authenticator.verified(first) and authenticator.verified(third)
    assert [authenticator.verified(again) for again in (first, second, third)] == [None] * 3
    assert authenticator.verified(MessageAuthenticator(KEY, 2).signed("beat", 0, TRAINING)), (
        "another rank counts for itself"
    )
    assert authenticator.verified(sender.signed("beat", 0, TRAINING)), "and goes on"


def test_a_phase_of_whatever_name_fits():
    for name in ("", "ü" * 100, "\U0001f600" * 9, "record"):
        heard = MessageAuthenticator(KEY, 0).verified(
            MessageAuthenticator(KEY, 1).signed("beat", 0, Phase(name))
        )
        assert heard.phase.name.startswith(name[:4])


def test_a_socket_that_is_woken_ends_its_wait_at_once():
    heartbeats = HeartbeatSocket(Ranks())
    heard = []
    listener = threading.Thread(target=lambda: heard.append(heartbeats.receive(3600)), daemon=True)
    listener.start()
    heartbeats.wake()
    listener.join(timeout=60)
    assert heard == [None]
    heartbeats.close()
