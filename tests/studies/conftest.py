"""A small study that has been made once, for all tests to look at and to copy."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from small_study import BASE, STUDY


@pytest.fixture(scope="session")
def made(hpctrip, tmp_path_factory):
    """`folder` with base.toml, study.toml and out/, where the study was made; `ended`: how the command ended."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "base.toml").write_text(BASE)
    (folder / "study.toml").write_text(STUDY)
    ended = hpctrip("study", folder / "study.toml", "--out", folder / "out", "--jobs", "2")
    return SimpleNamespace(folder=folder, ended=ended)


@pytest.fixture
def copied(made, tmp_path):
    """A copy of that folder, to be changed."""
    return shutil.copytree(made.folder, tmp_path / "copy")


@pytest.fixture
def study(hpctrip):
    """`study(folder, *arguments)`: the command on study.toml of a folder, with its out/."""

    def run(folder, *arguments):
        return hpctrip("study", folder / "study.toml", "--out", folder / "out", *arguments)

    return run
