"""A folder, and a cache of prepared data, for damaged files."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Damaged data must not stay in the session's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPCTRIP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of the commands."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.chdir(folder)
        yield folder
