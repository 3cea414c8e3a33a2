"""Small clusters and jobs that a person can check by hand, and where published data may lie."""

from pathlib import Path

import pytest

from hpctrip.cluster.models import Models

SHARED = Path(__file__).parents[2].parent / "shared/data/cluster"


@pytest.fixture(scope="session")
def published():
    """`published(path)`: a file of the published data; the test is skipped by its name where there is none."""

    def find(name):
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"no published data in {path}")
        return str(path)

    return find


@pytest.fixture(scope="session")
def catalogue():
    """The models that come with hpctrip, on nodes of 8 GPUs."""
    return Models().catalogue(8)
