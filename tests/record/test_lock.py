"""One job at a time writes a results file; the right to do so dies with whoever has it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from hpctrip.base.errors import InputError
from hpctrip.record import lock
from hpctrip.record.lock import OutputLock


@pytest.fixture
def out(tmp_path):
    return tmp_path / "run.h5"


def test_a_second_job_is_refused_with_the_name_of_the_first(out, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1234")
    held = OutputLock(out)
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(InputError) as caught:
        OutputLock(out)
    text = str(caught.value)
    assert text.startswith(f"{out}: is being written by process {os.getpid()} on ") and "(job 1234)" in text
    assert "choose another --out" in text and "\n" not in text
    held.release()
    OutputLock(out).release()
    assert os.listdir(out.parent) == []


def test_a_link_to_the_file_has_the_same_lock(out, tmp_path):
    (tmp_path / "link.h5").symlink_to(out)
    held = OutputLock(tmp_path / "link.h5")
    with pytest.raises(InputError, match="is being written by"):
        OutputLock(out)
    held.release()


def test_the_lock_of_a_killed_job_is_free_and_its_leftovers_are_removed(out):
    holds = "import sys, time; from hpctrip.record.lock import OutputLock, is_held; held = OutputLock(sys.argv[1]); "
    holds += "print(1, flush=True); time.sleep(60)"
    job = subprocess.Popen([sys.executable, "-c", holds, str(out)], stdout=subprocess.PIPE)
    assert job.stdout is not None and job.stdout.readline()
    with pytest.raises(InputError, match=f"is being written by process {job.pid} on "):
        OutputLock(out)
    others = {"run.h5", "run.h5.ckpt0", "run.h5.tmp", "another.h5.0123456789abcdef.tmp"}
    for name in (*others, "run.h5.0123456789abcdef.tmp", "run.h5.ckpt1.0123456789abcdef.tmp"):
        (out.parent / name).write_bytes(b"")
    os.kill(job.pid, signal.SIGKILL)
    job.communicate()
    held = OutputLock(out)
    assert held.note.startswith(f"an earlier start, process {job.pid} on ") and "was killed" in held.note
    held.release()
    assert set(os.listdir(out.parent)) == others and not OutputLock(out).note


@pytest.mark.parametrize(
    ("restarts", "now", "free"), [("0", "1", True), ("1", "1", False), ("x", "1", False), ("0", "x", False)]
)
def test_a_requeued_job_takes_over_from_its_own_earlier_start(out, monkeypatch, restarts, now, free):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    earlier = OutputLock(out)  # still there, as a lost machine's lock on a file server can be
    monkeypatch.setenv("SLURM_RESTART_COUNT", now)
    if free:
        later = OutputLock(out)
        earlier.release()
        with pytest.raises(InputError, match="is being written by"):
            OutputLock(out)
        later.release()
    else:
        with pytest.raises(InputError, match="is being written by"):
            OutputLock(out)


@pytest.mark.parametrize("text", [b"", b"\xff", b"[1]", b"{}", b"x" * 10_000, b'{"pid": 1}'])
def test_a_damaged_lock_file_still_locks(out, text):
    held = OutputLock(out)
    (out.parent / "run.h5.lock").write_bytes(text)
    with pytest.raises(InputError, match="is being written by another process"):
        OutputLock(out)
    held.release()


def test_a_folder_in_place_of_the_lock_is_one_clear_line(out):
    (out.parent / "run.h5.lock").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        OutputLock(out)


def test_on_a_file_system_without_locks_the_run_continues_with_a_warning(out, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock.fcntl, "flock", refuses)
    held = OutputLock(out)
    assert "cannot lock files (No locks available)" in held.note
    held.release()
