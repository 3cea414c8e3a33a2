"""Fixtures of the cluster tests: published data, if present, and the built-in catalogue of models."""

from pathlib import Path

import pytest

from hpctrip.cluster.models import Catalogue, Models

SHARED = Path(__file__).parents[2].parent / "shared/data/cluster"


@pytest.fixture(scope="session")
def published():
    """`published(path)`: the path of a published file; skips the test if it is missing."""

    def find(name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"no published data in {path}")
        return str(path)

    return find


@pytest.fixture(scope="session")
def catalogue():
    """The built-in models on nodes of 8 GPUs."""
    return Catalogue(Models(), 8)
