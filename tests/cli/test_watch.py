"""`watch` shows a run that another process writes, without affecting it."""

import os
import socket
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from hpctrip.cli import watch as watching
from hpctrip.cli.watch import recent_summary, watch
from hpctrip.record.lock import OutputLock
from hpctrip.record.reader import open_run
from hpctrip.record.show import facts_of, summary
from hpctrip.record.verify import verify
from hpctrip.record.writer import write_run
from hpctrip.sim.rounds import History


@pytest.fixture(scope="module")
def whole(trained):
    """A finished run of three rounds."""
    return trained()


@pytest.fixture
def written(whole, tmp_path):
    """`written(rounds, status)` writes its results file as it was after that many rounds."""
    path = tmp_path / "run.h5"
    sites = {
        name: (whole.sites[name].to_numpy(), whole.sites.attrs["units"][name], "") for name in whole.sites
    }

    def write(rounds, status="running"):
        meta = whole.meta | {"status": status, "stop_reason": "", "input_json": "{}"}
        write_run(path, meta, sites, History(whole.history().rows[:rounds]))
        return path

    return write


@pytest.fixture
def locked(tmp_path):
    """The lock of that run, which this process holds."""
    lock = OutputLock(tmp_path / "run.h5")
    yield lock
    lock.release()


def watch_output(path, steps, clock=lambda: 0.0):
    """The output and the last snapshot of `watch`; each of its polls runs the next of `steps`."""
    steps, said = iter(steps), []

    def sleep(seconds):
        if seconds >= 1:
            next(steps)()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(watching, "time", SimpleNamespace(sleep=sleep, time=clock))
        ended = watch(path, said.append)
    return "\n".join(said), ended


def test_every_round_is_printed_once_until_the_run_is_over(written, locked):
    path = written(1)
    steps = [lambda: written(1), lambda: written(2), lambda: None, lambda: written(3, "finished")]
    text, ended = watch_output(path, steps)
    assert [text.count(f"round    {number} ") for number in (1, 2, 3, 4)] == [1, 1, 1, 0]
    assert ended.status == "finished" and len(ended.rounds) == 3


def test_show_says_that_no_process_holds_a_run_that_was_killed(written, tmp_path):
    path, lock = written(1), OutputLock(tmp_path / "run.h5")
    assert summary(open_run(path))["status"] == "running"
    lock._file.close()  # as by kill -9: the lock file stays
    assert "no process is seen to hold it" in summary(open_run(path))["status"]
    assert facts_of(open_run(path))["status"] == "running"
    assert summary(open_run(written(3, "interrupted")))["status"] == "interrupted"


def test_a_missing_or_damaged_file_is_waited_for(written, locked):
    path = written(1)
    damage = [path.unlink, lambda: path.write_bytes(b"\x89HDF"), lambda: path.unlink() or path.mkdir()]
    steps = [*damage, path.rmdir, lambda: written(3, "interrupted")]
    text, ended = watch_output(path, steps)
    assert ended.status == "interrupted" and text.count("round    3 ") == 1


def test_watch_ends_as_soon_as_the_process_of_the_run_is_gone(written, locked, tmp_path):
    """The status stays `running`. The lock file of a killed process stays, and nothing locks it."""
    path, file = written(1), tmp_path / "run.h5.lock"
    holder = file.read_bytes()
    steps = iter([lambda: written(2), lambda: locked.release() or file.write_bytes(holder)])
    for steps_of_run in (steps, []):
        text, ended = watch_output(path, steps_of_run)
        assert ended.status == "running" and len(ended.rounds) == 2 and not list(steps)
        assert "it was killed" in text.splitlines()[-2]
        file.unlink(missing_ok=True)  # as its owner may have done


def test_the_lock_of_another_machine_may_not_be_seen_so_the_file_has_to_be_silent_too(
    written, locked, tmp_path, monkeypatch
):
    path, file, now = written(1), tmp_path / "run.h5.lock", [time.time()]

    def wait(seconds):
        now[0] += seconds

    file.write_bytes(file.read_bytes().replace(socket.gethostname().encode(), b"elsewhere"))
    holder = file.read_bytes()
    unseen = [lambda: written(2), lambda: locked.release() or file.write_bytes(holder)]
    steps = iter([lambda: wait(1000), *unseen, lambda: wait(59), lambda: wait(2)])
    text, ended = watch_output(path, steps, clock=lambda: now[0])
    assert len(ended.rounds) == 2 and not list(steps) and "it was killed" in text.splitlines()[-2]


def test_a_last_version_written_during_a_pause_is_read(written, locked):
    """After a slow reading, `watch` pauses for longer than `SILENT_S`."""
    path, now = written(1), [time.time()]

    def clock():
        now[0] += 100
        return now[0]

    steps = [lambda: written(2), lambda: written(3, "finished") and locked.release()]
    text, ended = watch_output(path, [*steps, *[lambda: None] * 2], clock=clock)
    assert ended.status == "finished" and "it was killed" not in text


def test_a_run_that_is_over_is_shown_at_once(hpctrip, whole):
    ended = hpctrip("watch", whole.path)
    assert ended.code == 0 and ended.out.count("round ") >= 3 and "status" in ended.out


def test_watch_writes_nothing_and_creates_no_lock(written, tmp_path):
    path = written(3, "finished")
    before = path.read_bytes(), os.stat(path).st_mtime_ns, sorted(tmp_path.iterdir())
    path.chmod(0o400)
    watch_output(path, [])
    assert (path.read_bytes(), os.stat(path).st_mtime_ns, sorted(tmp_path.iterdir())) == before


def test_a_missing_file_is_refused(hpctrip, tmp_path):
    hpctrip("watch", tmp_path / "none.h5").check_refused(["none.h5", "no such file"])


def test_the_recent_rounds_are_summarised_in_one_line(trained):
    run = trained("meter.assumed_w=40")
    line = recent_summary(run)
    assert line.startswith("last 3 rounds: ") and "samples/s; " in line and line.endswith(" samples/J")
    still = replace(run, rounds=run.rounds.assign(wall_j=0.0))  # a counter that has not moved yet
    assert recent_summary(still).endswith(" samples/s")
    assert recent_summary(replace(run, rounds=run.rounds.iloc[:0])) == ""
    gap = run.rounds["round"] == 2  # whose joules are not known
    partly = replace(run, rounds=run.rounds.assign(wall_j=run.rounds["wall_s"].where(~gap) * 50))
    assert "; 50.0 W, " in recent_summary(partly)


@pytest.mark.mpi
def test_a_run_of_several_ranks_is_followed_from_another_process(launch, tiny, tmp_path):
    """`watch` only reads the file, so the results do not change; test_loop.py checks them without it."""
    out, said = tmp_path / "run.h5", []
    run = launch.start(2, "run", tiny, "-o", "stop.max_rounds=12", "--out", out)
    while not out.exists() and run.poll() is None:
        time.sleep(0.05)
    ended = watch(out, said.append)
    run.communicate()
    assert run.returncode == 0 and ended.status == "finished"
    assert sum("  accuracy " in line for line in said) == 12 and verify(open_run(out)) == []
