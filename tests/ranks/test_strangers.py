"""Datagrams from outside a job do not affect its watchdogs; one that receives nothing warns and blames no rank."""

import secrets
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from datagrams import STRANGE, attack

from hpctrip.ranks.base import Phase, Ranks
from hpctrip.ranks.watchdog import heartbeat_socket, watchdog
from hpctrip.ranks.watchdog.heartbeat_socket import (
    KEY_BYTES,
    PACKET_BYTES,
    HeartbeatSocket,
    MessageAuthenticator,
    candidates,
)
from hpctrip.ranks.watchdog.watchdog import Limits, Watchdog

LIMITS = Limits(silent_s=2.0)


class ThreadRank(Ranks):
    """A rank that is a thread of this process, with the collectives that a watchdog needs. The ranks share `box` and
    `barrier`."""

    def __init__(self, rank, box, barrier):
        super().__init__()
        self.rank, self.size, self._box, self._barrier = rank, len(box), box, barrier

    def gather(self, value):
        values = self._exchanged(value)
        return values if self.rank == 0 else None

    def decide_on_root(self, decide):
        return self._exchanged(decide() if self.rank == 0 else None)[0]

    def _exchanged(self, value):
        self._box[self.rank] = value
        self._barrier.wait(60)
        values = list(self._box)
        self._barrier.wait(60)
        return values


def thread_ranks(size):
    """The ranks of one job."""
    box, barrier = [None] * size, threading.Barrier(size)
    return [ThreadRank(rank, box, barrier) for rank in range(size)]


def together(parts):
    """Run a function per rank at the same time; returns their results."""
    with ThreadPoolExecutor(len(parts)) as pool:
        return [future.result() for future in [pool.submit(part) for part in parts]]


@contextmanager
def watched(size, limits, end):
    """A watchdog for each of so many ranks, all of them watching."""
    dogs = [Watchdog(rank, limits, end) for rank in thread_ranks(size)]
    with ExitStack() as stack:
        together([dog.__enter__ for dog in dogs])
        for dog in dogs:
            stack.push(dog)
        yield dogs


def addresses(dogs):
    return [dog._socket._at for dog in dogs]


def until(condition, limit_s=60):
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "does not come true"
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """No pause for the stacks."""
    monkeypatch.setattr(watchdog, "STACKS_S", 0)


def test_strangers_neither_end_a_job_nor_blind_its_watchdogs(monkeypatch, capfd):
    captured, ended = [], threading.Event()
    signed = MessageAuthenticator.signed
    monkeypatch.setattr(
        MessageAuthenticator, "signed", lambda *args: captured.append(signed(*args)) or captured[-1]
    )
    with watched(3, LIMITS, lambda code: ended.set()) as dogs:
        until(lambda: len(captured) >= 12)
        foreign = MessageAuthenticator(secrets.token_bytes(KEY_BYTES), 1)
        strange = [*STRANGE, secrets.token_bytes(PACKET_BYTES), *captured]
        strange += [signed(foreign, word, 0, Phase()) for word in ("beat", "bye", "stacks")]
        for _ in range(6):
            attack(strange, addresses(dogs))
            time.sleep(LIMITS.silent_s / 4)
        assert not ended.is_set() and all(dog._thread.is_alive() for dog in dogs)
        assert capfd.readouterr().err == ""
        dogs[2]._socket.send = lambda *args: None  # as if it were stopped
        captured_by_then = list(captured)
        while not ended.is_set():
            attack([*STRANGE, *captured_by_then], addresses(dogs))
    assert "stuck: rank 2 on" in capfd.readouterr().err


def test_ranks_of_one_machine_listen_on_loopback_only():
    sockets = together([lambda rank=rank: HeartbeatSocket(rank) for rank in thread_ranks(3)])
    assert {one._socket.getsockname()[0] for one in sockets} == {"127.0.0.1"}
    for one in sockets:
        one.close()


def test_a_socket_that_fails_is_reported_once_and_replaced_and_no_rank_is_blamed(capfd):
    ended = []
    with watched(2, LIMITS, ended.append) as dogs:
        until(lambda: 1 in dogs[0]._beats)
        for _ in range(2):
            dogs[0]._socket._socket.close()
            until(lambda: 1 not in dogs[0]._beats)
            until(lambda: 1 in dogs[0]._beats)
        time.sleep(1.5 * LIMITS.silent_s)
        assert ended == []
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("hpctrip: watchdog of rank 0 on ") and "cannot hear the others: Bad file" in line


def test_a_fault_of_the_thread_itself_is_reported_once_and_it_watches_on(monkeypatch, capfd):
    ended, verdict = threading.Event(), watchdog.verdict

    def broken(*args):
        raise RecursionError("broken on purpose")

    monkeypatch.setattr(watchdog, "verdict", broken)
    with watched(1, Limits(silent_s=1.0, limit_s=0.1), lambda code: ended.set()) as (dog,):
        time.sleep(1.5)
        assert dog._thread.is_alive() and not ended.is_set()
        (line,) = capfd.readouterr().err.splitlines()
        assert line.endswith("had a fault and watches on: RecursionError: broken on purpose")
        monkeypatch.setattr(watchdog, "verdict", verdict)
        assert ended.wait(60)


def test_a_rank_whose_watchdog_cannot_send_is_not_blamed_for_silence(capfd):
    ended = []
    with watched(2, LIMITS, ended.append) as dogs:
        until(lambda: 1 in dogs[0]._beats)
        send = dogs[1]._socket.send

        def only_bye(word, to, phase):
            if word == "beat":
                raise ValueError("broken on purpose")
            send(word, to, phase)

        dogs[1]._socket.send = only_bye
        until(lambda: 1 not in dogs[0]._beats)
        time.sleep(1.5 * LIMITS.silent_s)
        assert ended == []
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("hpctrip: watchdog of rank 1 on ") and "had a fault and watches on" in line


def test_the_job_ends_although_its_stacks_cannot_be_printed(monkeypatch):
    ended = threading.Event()

    def broken():
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(watchdog, "_stack_lines", broken)
    with watched(1, Limits(silent_s=1.0, limit_s=0.1), lambda code: ended.set()):
        assert ended.wait(60)


def test_ranks_that_were_never_heard_are_named_once(monkeypatch, capfd):
    monkeypatch.setattr(HeartbeatSocket, "send", lambda *args: None)  # a firewall
    ended = []
    with watched(3, Limits(silent_s=1.0), ended.append) as dogs:
        until(lambda: all(dog._warned for dog in dogs))
        time.sleep(1)
        assert ended == []
    lines = sorted(capfd.readouterr().err.splitlines())
    assert len(lines) == 3
    host = socket.gethostname()
    assert (
        f"rank 0 on {host} has never heard: rank 1 on {host}, rank 2 on {host}, listening on 127" in lines[0]
    )
    assert (
        f"rank 2 on {host} has never heard: rank 0 on {host}, listening on 127.0.0.1 (a firewall" in lines[2]
    )


# where ranks on several machines listen


@pytest.fixture
def apart(monkeypatch):
    """Every rank seems to be on a machine of its own."""
    monkeypatch.delenv(heartbeat_socket.INTERFACE, raising=False)
    monkeypatch.setattr(heartbeat_socket, "loopback_id", lambda: threading.get_ident())


@pytest.mark.parametrize(
    ("routes", "names", "addresses"),
    [
        # a name that means loopback says nothing
        ({"node7": "127.0.0.1", heartbeat_socket._ELSEWHERE: "10.0.0.5"}, "127.0.1.1", ["10.0.0.5"]),
        # a network without names or routes
        ({}, None, []),
    ],
)
def test_the_addresses_at_which_another_machine_may_reach_this_one(
    routes, names, addresses, monkeypatch, apart
):
    def looked_up(address):
        if address is None:
            raise OSError("unknown")
        return address

    monkeypatch.setattr(heartbeat_socket, "_address_towards", lambda place: looked_up(routes.get(place)))
    monkeypatch.setattr(socket, "gethostbyname", lambda name: looked_up(names))
    assert list(candidates("node7")) == addresses


def test_an_address_that_is_not_this_machines_is_passed_over(monkeypatch, apart):
    monkeypatch.setattr(heartbeat_socket, "candidates", lambda other: ["192.0.2.77", "127.0.0.9"])
    sockets = together([lambda rank=rank: HeartbeatSocket(rank) for rank in thread_ranks(2)])
    assert [one.place for one in sockets] == ["127.0.0.9"] * 2
    for one in sockets:
        one.close()


def test_the_interface_may_be_named(monkeypatch, apart):
    monkeypatch.setenv(heartbeat_socket.INTERFACE, "lo")
    assert list(candidates("node7")) == ["127.0.0.1"]
    for none in ("ib9", "\udcff"):  # the latter is a byte that is not text
        monkeypatch.setenv(heartbeat_socket.INTERFACE, none)
        with pytest.raises(OSError, match=f"HPCTRIP_INTERFACE={none}: No such device"):
            list(candidates("node7"))


def test_ranks_that_cannot_receive_warn_and_are_not_blamed(monkeypatch, apart, capfd):
    monkeypatch.setenv(heartbeat_socket.INTERFACE, "ib9")
    ended = []
    with watched(2, Limits(silent_s=1.0), ended.append):
        time.sleep(2.5)
        assert ended == []
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.endswith("cannot hear the others: HPCTRIP_INTERFACE=ib9: No such device")
