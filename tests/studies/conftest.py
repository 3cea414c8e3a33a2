"""Fixtures with a small study that is executed once and then read or copied by all tests."""

from __future__ import annotations

import pickle
import shutil
from types import SimpleNamespace

import pytest
from filelock import FileLock
from small_study import BASE, STUDY


@pytest.fixture(scope="session")
def made(hpctrip, tmp_path_factory, for_all_processes):
    """`folder` with base.toml, study.toml and the results out/; `ended`: the result of the command. Made by the first
    process of the tests that needs it, copied by each."""
    folder, result = for_all_processes / "study", for_all_processes / "study.pickle"
    with FileLock(for_all_processes / "study.lock"):
        if not result.exists():
            folder.mkdir()
            (folder / "base.toml").write_text(BASE)
            (folder / "study.toml").write_text(STUDY)
            ended = hpctrip("study", folder / "study.toml", "--out", folder / "out", "--jobs", "2")
            result.write_bytes(pickle.dumps((ended.code, ended.out, ended.err)))
    code, out, err = pickle.loads(result.read_bytes())
    own = shutil.copytree(folder, tmp_path_factory.mktemp("study") / "own")
    return SimpleNamespace(folder=own, ended=SimpleNamespace(code=code, out=out, err=err))


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder, for tests that change it."""
    return shutil.copytree(made.folder, tmp_path / "copy")


@pytest.fixture
def study(hpctrip):
    """`study(folder, *arguments, do="run")`: a command of `hpctrip study` on study.toml of a folder, with its out/."""

    def run(folder, *arguments, do="run"):
        return hpctrip("study", do, folder / "study.toml", "--out", folder / "out", *arguments)

    return run
