"""Datagrams of every sort, to a decoder and to a watchdog that listens: refused, and what is genuine is still heard."""

import math
import secrets
import socket
import time

import pytest
from fuzzing import COUNTS, HANG_S, many, spoiled
from hypothesis import given
from hypothesis import strategies as st

from hpctrip.ranks.phase import Phase
from hpctrip.ranks.serial import SerialRanks
from hpctrip.ranks.watchdog.heartbeats import KEY_BYTES, PACKET_BYTES, WORDS, MessageAuthenticator
from hpctrip.ranks.watchdog.watchdog import Limits, Watchdog

KEY = secrets.token_bytes(KEY_BYTES)
MAX_BYTES = 65_507
"""Of an UDP datagram (IPv4)."""


@st.composite
def packets(draw, key=KEY):
    """What the watchdog of some rank might say to some other, under this key."""
    phase = Phase(draw(st.text(max_size=30)), draw(st.integers(-(2**63), 2**63 - 1)), draw(st.booleans()))
    authenticator = MessageAuthenticator(key, draw(st.integers(0, 2**32 - 1)))
    return authenticator.signed(draw(st.sampled_from(WORDS)), draw(st.integers(0, 2**32 - 1)), phase)


@st.composite
def strange(draw):
    """A datagram of somebody without the key: what is sealed with another, spoiled, random, nested, long or empty."""
    foreign = draw(packets(bytes(KEY_BYTES)))
    one = draw(
        st.one_of(
            st.just(foreign),
            spoiled(foreign),
            st.binary(max_size=2 * PACKET_BYTES),
            st.binary(min_size=PACKET_BYTES, max_size=PACKET_BYTES),
            st.sampled_from([b"[", b"{", b"\0", b"\xff"]).map(lambda byte: byte * 1024),
            st.integers(0, MAX_BYTES).map(bytes),
        )
    )
    return one[:MAX_BYTES]


def addressee(packet):
    """Behind the code, the word and the sender."""
    return int.from_bytes(packet[21:25], "big")


def counted(test, opened):
    counts = COUNTS.setdefault(test, {})
    counts[0 if opened else 2] = counts.get(0 if opened else 2, 0) + 1
    return opened


@many
@given(data=strange())
def test_a_strange_datagram_is_refused(data):
    assert not counted("datagrams", MessageAuthenticator(KEY, 1).verified(data))


@many
@given(data=st.data(), sound=packets())
def test_a_spoiled_datagram_is_refused(data, sound):
    spoiled_one = data.draw(spoiled(sound))
    opened = counted("spoiled datagrams", MessageAuthenticator(KEY, addressee(sound)).verified(spoiled_one))
    assert bool(opened) == (spoiled_one == sound)


@many
@given(data=packets())
def test_a_genuine_datagram_is_heard_once_and_only_where_it_is_addressed(data):
    to = addressee(data)
    authenticator = MessageAuthenticator(KEY, to)
    assert counted("own datagrams", authenticator.verified(data)) and authenticator.verified(data) is None
    assert MessageAuthenticator(KEY, (to + 1) % 2**32).verified(data) is None


@pytest.fixture(scope="module")
def listening():
    """(watchdog of rank 0, what a rank 1 would say with, a stranger's socket)."""
    ended = []
    with (
        Watchdog(SerialRanks(), Limits(silent_s=1e6, limit_s=1e6), ended.append) as dog,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
    ):
        yield dog, MessageAuthenticator(dog._socket._authenticator._key, 1), stranger
        assert not ended


@many
@given(datagrams=st.lists(strange(), max_size=20), round=st.integers(0, 2**40))
def test_a_watchdog_hears_a_rank_whatever_else_arrives(listening, datagrams, round):
    dog, rank_1, stranger = listening
    for data in datagrams:
        stranger.sendto(data, dog._socket._at)
        counted("live datagrams", None)
    deadline = time.monotonic() + HANG_S
    while 1 not in dog._known or dog._known[1].round != round:
        assert dog._thread.is_alive() and time.monotonic() < deadline, "no longer hears"
        stranger.sendto(rank_1.signed("beat", 0, Phase("train", round)), dog._socket._at)
        time.sleep(0.002)
    assert not dog._said and dog._ends == math.inf
