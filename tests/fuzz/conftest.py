"""What became of all the examples is told to the end of the test run; their files and cache."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/fuzz/fuzzing.py


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """What became of the examples of one test goes with its report, from whichever process it ran in."""
    from fuzzing import COUNTS

    COUNTS.clear()
    try:
        return (yield)
    finally:
        item.user_properties += [("commands", (test, dict(codes))) for test, codes in COUNTS.items()]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of our own: spoiled data must not stay in the user's."""
    before = os.environ.get("HPCTRIP_CACHE")
    os.environ["HPCTRIP_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield Path(os.environ["HPCTRIP_CACHE"])
    os.environ.pop("HPCTRIP_CACHE")
    if before is not None:
        os.environ["HPCTRIP_CACHE"] = before


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the files go."""
    from fuzzing import SMALL

    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "small.toml").write_text(SMALL)
    return folder
