"""A results file is whole at every moment, whatever happens to the job or to the disk."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from hpctrip.base.errors import HpctripError, InputError
from hpctrip.base.io import check_writable, replace_file
from hpctrip.record import writer
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify
from hpctrip.record.writer import Recorder, image, write_run
from hpctrip.sim.rounds import History


def test_equal_runs_give_equal_bytes(meta, fake_sites, fake_history):
    first = image(meta, fake_sites(5), fake_history(3, 5))
    assert image(meta, fake_sites(5), fake_history(3, 5)) == first
    write = "from conftest import *; from conftest import _sites, _history; from hpctrip.record.writer import image; "
    write += "sys.stdout.buffer.write(image(META, _sites(5), _history(3, 5)))"
    again = subprocess.run(  # another process, whose sets and dictionaries have another order
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {write}"],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
    )
    assert again.stdout == first, again.stderr.decode()
    assert image(meta, fake_sites(5), fake_history(2, 5)) != first


def test_the_file_explains_itself_to_any_hdf5_tool(run_file):
    with h5py.File(run_file) as file:
        assert file.attrs["format"] == b"hpctrip run"
        assert list(file["rounds"])[:3] == ["round", "clock_start_s", "clock_s"]
        clock = file["rounds/clock_s"]
        assert clock.attrs["unit"] == b"s"
        assert clock.attrs["description"] == b"simulated time at the round's end"
        assert clock.dims[0]["round"] == file["rounds/round"]
        assert file["sites/distance_m"].dims[0]["site"] == file["sites/site"]
        assert file["rounds_sites"].attrs["description"].endswith(b"index: round, site")


def test_a_run_without_a_round_is_a_sound_file(written):
    assert verify(written(History())) == []


def test_attributes_may_be_longer_than_64_kib(written):
    more = {"hosts": [f"nœud{i}" for i in range(10_000)], "command": "é" * 100_000}
    assert written(History(), **more).meta.items() >= more.items()


def test_an_attribute_of_the_wrong_type_is_a_programming_error(meta, fake_sites):
    with pytest.raises(TypeError, match=r"seed is 1\.5, not a int"):
        image(meta | {"seed": 1.5}, fake_sites(5), History())


def test_a_job_killed_at_any_moment_leaves_a_whole_file(meta, fake_sites, fake_history, tmp_path):
    path = tmp_path / "run.h5"
    images = [image(meta | {"seed": n}, fake_sites(20), fake_history(100 + n, 20)) for n in range(2)]
    replace_file(path, images[0])
    for trial in range(10):
        child = os.fork()
        while child == 0:  # until it is killed
            with suppress(BaseException):
                replace_file(path, images[0])
                replace_file(path, images[1])
        time.sleep(random.Random(trial).uniform(0.005, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        run = open_run(path)
        assert verify(run) == [] and len(run.rounds) == 100 + run.meta["seed"]


def test_the_umask_decides_who_may_read_a_file(written):
    before = os.umask(0o027)
    try:
        assert written().path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_full_disk_leaves_the_earlier_file_and_nothing_else(
    meta, fake_sites, fake_history, run_file, monkeypatch
):
    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = run_file.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HpctripError, match="No space left on device; free some space") as caught:
        write_run(run_file, meta, fake_sites(5), fake_history(4, 5))
    assert str(run_file) in str(caught.value) and not isinstance(caught.value, InputError)
    assert run_file.read_bytes() == before
    assert os.listdir(run_file.parent) == ["run.h5"]


def test_missing_folders_are_made_but_only_when_writing(meta, fake_sites, tmp_path):
    path = tmp_path / "new" / "deeper" / "run.h5"
    check_writable(path)
    assert os.listdir(tmp_path) == []
    write_run(path, meta, fake_sites(5), History())
    assert open_run(path).meta["seed"] == 7


@pytest.mark.parametrize("place", [".", "file/run.h5", "x" * 300, "/proc/hpctrip/run.h5"])
def test_a_place_that_cannot_be_written_is_one_clear_line(place, meta, fake_sites, tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / place
    for attempt in (lambda: check_writable(path), lambda: write_run(path, meta, fake_sites(5), History())):
        with pytest.raises(InputError, match="cannot be written") as caught:
            attempt()
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_reported(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="choose a place where you may write"):
        check_writable(tmp_path / "run.h5")


def test_an_existing_file_is_replaced_only_with_overwrite(run_file):
    with pytest.raises(InputError, match="exists already"):
        check_writable(run_file)
    check_writable(run_file, overwrite=True)
    assert os.listdir(run_file.parent) == ["run.h5"]


def test_a_recorder_spends_two_percent_of_the_time_on_writing(fake_history, fake_sites, monkeypatch):
    now_s, written = 0.0, []

    def write(path, meta, sites, history):
        nonlocal now_s
        now_s += 1.0  # writing takes a second
        written.append((len(history), meta["status"]))

    monkeypatch.setattr(writer, "write_run", write)
    monkeypatch.setattr(writer, "time", SimpleNamespace(perf_counter=lambda: now_s))
    recorder = Recorder("run.h5", {"status": "running"}, fake_sites(5))
    for number in range(1, 121):
        now_s += 1.0  # a round takes a second
        recorder.record(fake_history(1, 5) if number == 1 else History(fake_history(1, 5).rows * number))
    recorder.write(History(), status="finished")
    assert written == [(1, "running"), (51, "running"), (101, "running"), (0, "finished")]


def test_a_recorder_writes_when_the_run_began_and_how_it_ended(meta, fake_sites, fake_history, tmp_path):
    recorder = Recorder(tmp_path / "run.h5", meta | {"status": "running"}, fake_sites(5))
    assert recorder.record(fake_history(1, 5))
    assert open_run(tmp_path / "run.h5").meta["status"] == "running"
    recorder.write(fake_history(3, 5), status="failed", stop_reason="rank 2 raised an error")
    run = open_run(tmp_path / "run.h5")
    assert run.meta["stop_reason"] == "rank 2 raised an error"
    assert len(run.rounds) == 3 and run.time_to_accuracy_s == 52.0
    assert run.meta["created_utc"] <= run.meta["updated_utc"]


def test_a_nul_at_the_end_of_a_text_does_not_make_the_file_unsound(meta, fake_sites, fake_history, tmp_path):
    """HDF5 drops it; the checksum is of what is stored."""
    path = tmp_path / "run.h5"
    sites = fake_sites(2) | {"name": (np.array(["a\0", "\0b"], dtype=object), "1", "name")}
    texts = {"label": "x\0", "hosts": ["n\0", "m\0o"]}
    write_run(path, meta | texts, sites, fake_history(3, 2))
    run = open_run(path)
    assert verify(run) == [] and run.meta["label"] == "x" and run.meta["hosts"] == ["n", "m\0o"]
