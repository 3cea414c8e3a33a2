"""A path that names a pipe or a folder instead of a file is refused in one line, at once, and stays what it is."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

LONGEST_S = 100
SUFFIXES = ("", ".py", ".h5", ".csv", ".ckpt0", ".safetensors", ".png")
READ = {  # one command for each way to open a file
    "an input": ["check", "NAME"],
    "a results file to resume": ["resume", "NAME.h5"],
    "a checkpoint": ["resume", "NAME.ckpt0"],
    "a results file": ["verify", "NAME"],
    "a table": ["plot", "scaling", "NAME"],
    "a plug-in": ["run", "TINY", "--plugin", "NAME.py"],
    "power": ["run", "TINY", "-o", "power.kind='trace'", "-o", "power.path='NAME'"],
    "sites": ["run", "TINY", "-o", "sites={kind='csv', path='NAME'}"],
    "outages": ["run", "TINY", "-o", "faults={deadline_s=9, outages='NAME'}"],
    "emnist": ["run", "TINY", "-o", "workload.data='NAME'"],
    "femnist": ["run", "TINY", "-o", "workload={kind='femnist', data='NAME'}"],
    "shakespeare": ["run", "TINY", "-o", "workload={kind='shakespeare', data='NAME'}"],
    "speech": ["run", "TINY", "-o", "workload={kind='speech', data='NAME'}"],
    "a model": ["run", "TINY", "-o", "workload={kind='llm', model='NAME'}"],
}
WRITTEN = {
    "a results file": ["run", "TINY", "--out", "NAME.h5"],
    "one to replace": ["run", "TINY", "--overwrite", "--out", "NAME.h5"],
    "one to go on in": ["resume", "run.h5", "--out", "NAME.h5"],
    "a model's file": ["export", "run.h5", "--model", "NAME.safetensors", "--overwrite"],
    "a picture": ["plot", "summary", "run.h5", "--out", "NAME.png"],
    "a merged table": ["merge", "--overwrite", "NAME.h5", "run.h5"],
}
FOLDERS = {
    "a folder of tables": ["export", "run.h5", "NAME"],
    "data": ["fetch", "emnist", "NAME"],
}


THINGS = {"a pipe": os.mkfifo, "a folder": os.mkdir}


@pytest.fixture(scope="module")
def made(trained):
    return trained("stop.max_rounds=1", "checkpoint.every_rounds=1").path


@pytest.fixture(params=THINGS)
def thing(request, made, tmp_path, monkeypatch):
    """Which thing it is that lies in the working folder as "it" with every suffix, beside a sound run.h5."""
    monkeypatch.chdir(tmp_path)
    for suffix in SUFFIXES:
        THINGS[request.param](tmp_path / f"it{suffix}")
    shutil.copy(made, "run.h5")
    shutil.copy(f"{made}.ckpt0", "run.h5.ckpt0")
    return request.param


@pytest.fixture
def alarm():
    """In the test's body an alarm ends a command that hangs."""

    def late(*signal_and_frame):
        raise AssertionError("the command hangs")  # no OSError, which would be reported as bad input

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_pipes_and_folders_are_refused_wherever_a_path_is_given(thing, hpctrip, tiny, alarm, tmp_path):
    before = {path: path.lstat().st_mode for path in tmp_path.glob("it*")}
    places = READ | WRITTEN | ({} if thing == "a folder" else FOLDERS)
    for place, command in places.items():
        words = [str(tiny) if word == "TINY" else word.replace("NAME", "it") for word in command]
        signal.alarm(LONGEST_S)
        ended = hpctrip(*words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1, (place, ended)
        assert "a bug in hpctrip" not in ended.err and "Traceback" not in ended.err, (place, ended)
    assert {path: path.lstat().st_mode for path in tmp_path.glob("it*")} == before
    made_here = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert made_here == {"run.h5", "run.h5.ckpt0"}
