"""Commands in a folder of their own."""

from __future__ import annotations

import pytest

from hpctrip.base import component


@pytest.fixture
def own_components(monkeypatch):
    """What plug-ins register is forgotten after the test."""
    for registry in component._registries:
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))


@pytest.fixture
def folder(tmp_path, monkeypatch, own_components):
    """An empty working folder; what plug-ins register vanishes with the test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def files_in():
    """`files_in(folder)`: sizes by path; but for Python's own cache of a plug-in, which PYTHONDONTWRITEBYTECODE would
    turn off."""

    def sizes(folder):
        paths = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        return {path.relative_to(folder): path.stat().st_size for path in paths}

    return sizes
