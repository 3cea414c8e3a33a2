"""Fixtures with a small study that is executed once and then read or copied by all tests."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from small_study import BASE, STUDY


@pytest.fixture(scope="session")
def made(hpctrip, tmp_path_factory):
    """`folder` with base.toml, study.toml and the results out/; `ended`: the result of the command."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "base.toml").write_text(BASE)
    (folder / "study.toml").write_text(STUDY)
    ended = hpctrip("study", folder / "study.toml", "--out", folder / "out", "--jobs", "2")
    return SimpleNamespace(folder=folder, ended=ended)


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder, for tests that change it."""
    return shutil.copytree(made.folder, tmp_path / "copy")


@pytest.fixture
def study(hpctrip):
    """`study(folder, *arguments)`: run `hpctrip study` on study.toml of a folder, with its out/."""

    def run(folder, *arguments):
        return hpctrip("study", folder / "study.toml", "--out", folder / "out", *arguments)

    return run
