"""Two jobs, or the files of two runs, under one name: nothing that anybody computed is lost without a word."""

from __future__ import annotations

import os
import shutil

import h5py
import numpy as np
import pytest

from hpctrip import simulate
from hpctrip.record.checkpoint import SUFFIXES
from hpctrip.record.lock import OutputLock
from hpctrip.record.reader import open_run
from hpctrip.record.verify import verify

EVERY_ROUND = ("-o", "checkpoint.every_rounds=1", "-o", "watchdog.enabled=false")


@pytest.fixture(scope="module")
def originals(tmp_path_factory, hpctrip, tiny):
    """A folder with two runs of other seeds, each of two rounds."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate("ab"):
        rounds = ("-o", "stop.max_rounds=2", "-o", f"seed={seed}", "--out", folder / f"{name}.h5")
        assert hpctrip("run", tiny, *EVERY_ROUND, *rounds).code == 0
    return folder


@pytest.fixture
def runs(originals, tmp_path):
    """Copies of these two."""
    shutil.copytree(originals, tmp_path, dirs_exist_ok=True)
    return [tmp_path / "a.h5", tmp_path / "b.h5"]


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


@pytest.mark.parametrize("command", ["cluster", "merge"])
def test_other_commands_are_refused_while_a_run_writes_the_file(runs, hpctrip, command):
    path = runs[0].with_name("live.h5")
    words = {"cluster": ("-o", "jobs.num_jobs=8", "--out", path), "merge": (path, *runs)}[command]
    before = content(path.parent)
    with OutputLock(path):
        ended = hpctrip(command, *words, "--overwrite")
        ended.check_refused([f"{path}: is being written by process {os.getpid()} on "])
    assert content(path.parent) == before


def test_the_trace_of_a_cluster_is_not_written_over(tmp_path, hpctrip):
    trace = tmp_path / "trace.h5"
    trace.write_text("submit_s,gpus,duration_s\n0,1,100\n")
    lines = ("-o", "jobs.kind=csv", "-o", f"jobs.path={trace}", "-o", "scheduler.kind=fifo")
    hpctrip("cluster", *lines, "--out", trace, "--overwrite").check_refused(["trace.h5: is an input"])
    assert trace.read_text().startswith("submit_s")


def test_of_two_runs_that_start_together_one_is_refused(tmp_path, tiny, launch):
    path = tmp_path / "runs" / "run.h5"
    words = ("run", tiny, "--out", path, *EVERY_ROUND, "-o")
    jobs = launch.together(tmp_path, *((*words, f"seed={seed}") for seed in (0, 1)))
    codes, errors = [job.code for job in jobs], [job.err for job in jobs]
    assert sorted(codes) == [0, 2], errors
    assert "is being written by" in errors[codes.index(2)] or "exists already" in errors[codes.index(2)]
    run = open_run(path)
    assert verify(run) == [] and run.input["seed"] == codes.index(0)
    assert {file.name for file in path.parent.iterdir()} == {"run.h5", "run.h5.ckpt0", "run.h5.ckpt1"}


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


def of_another_program(path):
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_("another program")


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


UNRELATED = {
    "a text": lambda path: path.write_text("notes of a year"),
    "a cluster's results": lambda path: simulate(overrides={"jobs.num_jobs": 4}, out=path, overwrite=True),
    "another program's results": of_another_program,
    "those, damaged": lambda path: (of_another_program(path), halve(path)),
    "its own results without the attributes, at their end": halve,
    "a checkpoint": lambda path: shutil.copy(f"{path}.ckpt0", path),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("what", UNRELATED)
def test_a_resume_replaces_only_results_of_its_own_run(runs, hpctrip, tiny, what):
    run = runs[0]
    UNRELATED[what](run)
    before = run.read_bytes() if run.is_file() else run.stat().st_ino
    for command in (
        ("resume", run, "-o", "stop.max_rounds=3"),
        ("resume", f"{run}.ckpt0", "-o", "stop.max_rounds=3"),
        ("run", tiny, *EVERY_ROUND, "-o", "seed=0", "--resume", "--out", run),
    ):
        hpctrip(*command).check_refused([f"{run}: is ", "another"])
        assert (run.read_bytes() if run.is_file() else run.stat().st_ino) == before
    if what != "a pipe":
        run.rename(run.with_name("kept"))
        assert hpctrip("resume", run, "-o", "stop.max_rounds=3").code == 0


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
