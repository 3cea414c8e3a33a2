"""Diagnosis of stuck ranks from the last heartbeat of every rank."""

import threading
import time

import pytest

from hpctrip.ranks.base import Phase, Ranks, RoundTimer
from hpctrip.ranks.watchdog import watchdog
from hpctrip.ranks.watchdog.watchdog import Beat, Limits, Watchdog, verdict

LIMITS = Limits(silent_s=10.0, limit_s=100.0, record_s=5.0)
NOW = 1000.0


def beat(phase="train", waits=False, since_s=1.0, heard_s=0.5):
    return Beat(Phase(phase, 3, waits, NOW - since_s), NOW - heard_s)


WAITS, BUSY = beat("exchange", waits=True), beat("record", since_s=6)
LOST = beat("exchange", waits=True, since_s=101)


@pytest.mark.parametrize(
    ("rank", "size", "beats", "problem", "blamed"),
    [
        # a rank at work for which others wait is no fault
        (0, 3, {0: beat("exchange", True, 99), 1: beat(since_s=99), 2: WAITS}, "", []),
        # a phase has its own limit
        (2, 3, {0: WAITS, 2: BUSY}, "busy with record of round 3 for 6 s (limit 5 s)", [2]),
        (2, 3, {0: WAITS, 2: beat(since_s=6)}, "", []),
        # rank 0 names silent hosts, a host names rank 0; higher hosts leave that to the first one for a while
        (
            *(0, 4, {0: WAITS, 1: beat(heard_s=11), 2: WAITS, 3: beat(heard_s=30)}),
            *("silent for more than 10 s", [1, 3]),
        ),
        (1, 4, {1: WAITS, 0: beat("record", heard_s=11)}, "silent for more than 10 s", [0]),
        (3, 4, {3: WAITS, 0: beat("record", heard_s=11)}, "", []),
        (3, 4, {3: WAITS, 0: beat("record", heard_s=13)}, "silent for more than 10 s", [0]),
        # all wait for each other: a message is lost
        (0, 2, {0: LOST, 1: LOST}, "every rank heard of waits, for 101 s (limit 100 s)", [0, 1]),
        (0, 2, {0: LOST, 1: beat("exchange", True, 99)}, "", []),
        # a rank that was never heard is not accused of silence, and is given more time
        (0, 2, {0: beat("exchange", True, 399)}, "", []),
        (0, 2, {0: beat("exchange", True, 401)}, "every rank heard of waits, for 401 s (limit 400 s)", [1]),
        (1, 2, {1: beat("record", True, 19)}, "", []),
        (1, 2, {1: beat("record", True, 21)}, "every rank heard of waits, for 21 s (limit 20 s)", [0]),
    ],
)
def test_the_stuck_ranks_are_found_from_the_last_heartbeat_of_each(rank, size, beats, problem, blamed):
    assert verdict(rank, size, beats, NOW, LIMITS) == (problem, blamed)


def test_time_spent_waiting_is_not_counted_as_the_phases():
    phase = Phase()
    phase.enter("exchange", 7)
    phase.since -= 1000
    with phase.waiting():
        assert phase.waits and time.monotonic() - phase.since < 100
        phase.since -= 1000
    assert not phase.waits and time.monotonic() - phase.since < 100
    assert (phase.name, phase.round) == ("exchange", 7)


def test_a_phase_is_entered_for_the_watchdog_and_for_the_wall_clock_at_once():
    phase = Phase()
    wall = RoundTimer(phase)
    wall.start()
    with wall.phase("exchange", 3):
        assert (phase.name, phase.round) == ("exchange", 3)
    with wall.phase("exchange", 3):
        pass
    assert list(wall.phases) == ["exchange"] and 0 < wall.phases["exchange"] <= wall.end()


def test_one_process_stuck_alone_shows_its_stacks_in_one_piece_and_ends(monkeypatch):
    ended, written = threading.Event(), []
    monkeypatch.setattr(watchdog, "STACKS_S", 0)
    monkeypatch.setattr(watchdog.os, "write", lambda file, data: written.append(data.decode()))
    ranks = Ranks()
    ranks.phase.enter("train", 4)
    with Watchdog(ranks, Limits(silent_s=1.0, limit_s=0.2), lambda code: ended.set()):
        assert ended.wait(20)
    report, stacks = written[:2]
    assert "stuck: rank 0 on" in report and "busy with train of round 4" in report
    head, *lines = stacks.splitlines()
    assert head.startswith("hpctrip: stacks of rank 0 on")
    assert all(line.startswith("hpctrip:   rank 0: ") for line in lines)  # the rank is in every line
    assert any("in test_one_process_stuck_alone" in line for line in lines)  # the stack of the main thread


def test_a_rank_that_goes_on_is_left_alone():
    ended, ranks = [], Ranks()
    with Watchdog(ranks, Limits(silent_s=1.0, limit_s=1.0), ended.append):
        for round in range(15):
            ranks.phase.enter("train", round)
            time.sleep(0.1)
    assert ended == []
