"""Two jobs, or the files of two runs, under one name: nothing that anybody computed is lost without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from hpctrip.record.checkpoint import SUFFIXES
from hpctrip.record.lock import OutputLock
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

EVERY_ROUND = ("-o", "checkpoint.every_rounds=1", "-o", "watchdog.enabled=false")


@pytest.fixture
def runs(tmp_path, hpctrip, tiny):
    """Two runs of other seeds, each of two rounds."""
    paths = [tmp_path / f"{name}.h5" for name in ("a", "b")]
    for seed, path in enumerate(paths):
        rounds = ("-o", "stop.max_rounds=2", "-o", f"seed={seed}", "--out", path)
        assert hpctrip("run", tiny, *EVERY_ROUND, *rounds).code == 0
    return paths


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("command", [("--overwrite",), ("--resume",)])
def test_a_run_beside_another_is_refused_and_touches_nothing(runs, hpctrip, tiny, command):
    before = content(runs[0].parent)
    held = OutputLock(runs[0])
    try:
        ended = hpctrip("run", tiny, *EVERY_ROUND, "--out", runs[0], *command)
        ended.check_refused([f"{runs[0]}: is being written by process {os.getpid()} on ", "another --out"])
        hpctrip("resume", runs[0]).check_refused(["is being written by"])
        assert hpctrip("verify", runs[0]).code == 0, "whoever only reads needs no lock"
    finally:
        held.release()
    assert content(runs[0].parent) == before


def test_two_that_start_together_one_runs_and_the_other_says_why_not(tmp_path, tiny):
    path = tmp_path / "run.h5"
    words = [sys.executable, "-m", "hpctrip", "run", tiny, "--out", str(path), *EVERY_ROUND]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    jobs = [subprocess.Popen([*words, "-o", f"seed={seed}"], **pipes) for seed in (1, 2)]
    errors = [job.communicate()[1] for job in jobs]
    codes = [job.returncode for job in jobs]
    assert sorted(codes) == [0, 2], errors
    assert "is being written by" in errors[codes.index(2)] or "exists already" in errors[codes.index(2)]
    run = open_run(path)
    assert verify(run) == [] and run.input["seed"] == 1 + codes.index(0)
    assert {file.name for file in tmp_path.iterdir()} == {"run.h5", "run.h5.ckpt0", "run.h5.ckpt1"}


def test_checkpoints_of_another_run_do_not_replace_its_results(runs, hpctrip):
    a, b = runs
    for suffix in SUFFIXES:
        shutil.copy(f"{b}{suffix}", f"{a}{suffix}")
    before = content(a.parent)
    ended = hpctrip("resume", a, "-o", "stop.max_rounds=3")
    ended.check_refused([f"seed: is 1, but 0 in {a}"])
    assert content(a.parent) == before
    elsewhere = a.with_name("c.h5")
    assert hpctrip("resume", a, "-o", "stop.max_rounds=3", "--out", elsewhere).code == 0
    assert open_run(elsewhere).input["seed"] == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_folder_in_place_of_a_checkpoint_is_one_clear_line(runs, hpctrip, tiny, suffix):
    place = runs[0].with_name(runs[0].name + suffix)
    place.unlink()
    place.mkdir()
    line = f"{place}: cannot be written: it is a directory"
    hpctrip("resume", runs[0], "-o", "stop.max_rounds=3").check_refused([line])
    for how in ("--overwrite", "--resume"):
        ended = hpctrip("run", tiny, *EVERY_ROUND, "--out", runs[0], how, "-o", "stop.max_rounds=3")
        ended.check_refused([line])
    assert place.is_dir() and verify(open_run(runs[0])) == []
