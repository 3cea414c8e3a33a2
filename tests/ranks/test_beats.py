"""What is believed of a datagram: only what was closed under the job's key, for this rank, and is news."""

import json
import time

import pytest

from hpctrip.ranks.beats import KEY_BYTES, PACKET_BYTES, Packet, Seal
from hpctrip.ranks.phase import Phase

KEY = bytes(range(KEY_BYTES))
TRAINING = Phase("train", 7, True, time.monotonic() - 5)


def test_a_packet_says_where_its_sender_is_and_since_when():
    began = time.monotonic() - 5
    heard = Seal(KEY, 0).opened(Seal(KEY, 3).closed("beat", 0, Phase("train", 7, True, began)))
    assert heard == Packet("beat", 3, "train", 7, True, heard.age_s)
    assert 5 <= heard.age_s <= time.monotonic() - began


@pytest.mark.parametrize("word", ["beat", "stacks", "bye"])
def test_every_word_arrives(word):
    assert Seal(KEY, 1).opened(Seal(KEY, 0).closed(word, 1, TRAINING)).word == word


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"[" * 1024, "nested JSON"),
        (bytes(PACKET_BYTES), "zeros"),
        (json.dumps(["", "stacks", 3, "train", 7, True, 5.0]).encode(), "what older watchdogs said"),
        (Seal(bytes(KEY_BYTES), 3).closed("beat", 0, TRAINING), "another job's key"),
        (Seal(KEY, 3).closed("beat", 0, TRAINING)[:-1], "one byte less"),
        (Seal(KEY, 3).closed("beat", 0, TRAINING) + b"\0", "one byte more"),
        (Seal(KEY, 3).closed("bye", 1, TRAINING), "for another rank"),
        (Seal(KEY, 0).closed("bye", 1, TRAINING), "our own, sent back"),
    ],
)
def test_nothing_else_is_believed(data, why):
    assert Seal(KEY, 0).opened(data) is None, why


def test_no_bit_of_a_packet_can_be_changed():
    sound, seal = Seal(KEY, 3).closed("beat", 0, TRAINING), Seal(KEY, 0)
    for bit in range(8 * len(sound)):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        assert seal.opened(bytes(changed)) is None
    assert seal.opened(sound)


def test_a_packet_is_heard_once_and_not_after_a_later_one_of_its_sender():
    sender, seal = Seal(KEY, 3), Seal(KEY, 0)
    first, second, third = (sender.closed("beat", 0, TRAINING) for _ in range(3))
    assert seal.opened(first) and seal.opened(third)
    assert [seal.opened(again) for again in (first, second, third)] == [None] * 3
    assert seal.opened(Seal(KEY, 2).closed("beat", 0, TRAINING)), "another rank counts for itself"
    assert seal.opened(sender.closed("beat", 0, TRAINING)), "and goes on"


def test_a_phase_of_whatever_name_fits():
    for name in ("", "ü" * 100, "\U0001f600" * 9, "record"):
        heard = Seal(KEY, 0).opened(Seal(KEY, 1).closed("beat", 0, Phase(name)))
        assert heard.phase.startswith(name[:4])
