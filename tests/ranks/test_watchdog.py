"""Diagnosis of stuck ranks from the last heartbeat of every rank."""

import threading
import time

from hpctrip.ranks.phase import Phase, RoundTimer
from hpctrip.ranks.serial import SerialRanks
from hpctrip.ranks.watchdog import watchdog
from hpctrip.ranks.watchdog.watchdog import Beat, Limits, Watchdog, verdict

LIMITS = Limits(silent_s=10.0, limit_s=100.0, record_s=5.0)
NOW = 1000.0


def beat(phase="train", waits=False, since_s=1.0, heard_s=0.5):
    return Beat(Phase(phase, 3, waits, NOW - since_s), NOW - heard_s)


def judge(rank, size, **beats):
    return verdict(rank, size, {int(name[1:]): at for name, at in beats.items()}, NOW, LIMITS)


def test_a_rank_at_work_that_others_wait_for_is_no_fault():
    waiting = beat("exchange", waits=True, since_s=99)
    assert judge(0, 3, r0=waiting, r1=beat(since_s=99), r2=waiting) == ("", [])


def test_a_rank_is_stuck_when_busy_with_one_phase_beyond_that_phases_limit():
    problem, blamed = judge(2, 3, r0=beat("exchange", waits=True), r2=beat("record", since_s=6))
    assert problem == "busy with record of round 3 for 6 s (limit 5 s)" and blamed == [2]
    assert judge(2, 3, r0=beat("exchange", waits=True), r2=beat("train", since_s=6)) == ("", [])


def test_rank_0_names_the_hosts_that_fell_silent_and_hosts_name_rank_0():
    waiting = beat("exchange", waits=True)
    problem, blamed = judge(0, 4, r0=waiting, r1=beat(heard_s=11), r2=waiting, r3=beat(heard_s=30))
    assert problem == "silent for more than 10 s" and blamed == [1, 3]
    assert judge(1, 4, r1=waiting, r0=beat("record", heard_s=11))[1] == [0]


def test_higher_hosts_leave_a_silent_rank_0_to_the_first_one_for_a_while():
    waiting, silent = beat("record", waits=True), beat("record", heard_s=11)
    assert judge(3, 4, r3=waiting, r0=silent) == ("", [])
    assert judge(3, 4, r3=waiting, r0=beat("record", heard_s=13))[1] == [0]


def test_all_waiting_for_each_other_is_a_lost_message():
    lost = beat("exchange", waits=True, since_s=101)
    problem, blamed = judge(0, 2, r0=lost, r1=lost)
    assert problem == "every rank heard of waits, for 101 s (limit 100 s)" and blamed == [0, 1]
    assert judge(0, 2, r0=lost, r1=beat("exchange", waits=True, since_s=99)) == ("", [])


def test_a_rank_never_heard_is_not_accused_of_silence_and_given_more_time():
    assert judge(0, 2, r0=beat("exchange", waits=True, since_s=399)) == ("", [])
    assert judge(0, 2, r0=beat("exchange", waits=True, since_s=401))[1] == [1]
    assert judge(1, 2, r1=beat("record", waits=True, since_s=19)) == ("", [])
    assert judge(1, 2, r1=beat("record", waits=True, since_s=21))[1] == [0]


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


def test_one_process_stuck_alone_shows_its_stacks_and_ends(capfd, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(watchdog, "STACKS_S", 0)
    ranks = SerialRanks()
    ranks.phase.enter("train", 4)
    with Watchdog(ranks, Limits(silent_s=1.0, limit_s=0.2), lambda code: ended.set()):
        assert ended.wait(20)
    text = capfd.readouterr().err
    assert "stuck: rank 0 on" in text and "busy with train of round 4" in text
    assert "in test_one_process_stuck_alone" in text  # the stack of the main thread


def test_stacks_are_written_in_one_piece_with_the_rank_in_every_line(monkeypatch):
    written = []
    monkeypatch.setattr(watchdog.os, "write", lambda file, data: written.append(data))
    Watchdog(SerialRanks(), Limits())._stacks()
    (text,) = written
    head, *lines = text.decode().splitlines()
    assert head.startswith("hpctrip: stacks of rank 0 on")
    assert all(line.startswith("hpctrip:   rank 0: ") for line in lines)
    assert any(
        line.endswith("in test_stacks_are_written_in_one_piece_with_the_rank_in_every_line") for line in lines
    )


def test_a_rank_that_goes_on_is_left_alone():
    ended, ranks = [], SerialRanks()
    with Watchdog(ranks, Limits(silent_s=1.0, limit_s=1.0), ended.append):
        for round in range(15):
            ranks.phase.enter("train", round)
            time.sleep(0.1)
    assert ended == []
