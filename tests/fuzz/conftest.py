"""Prints what became of all the examples."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests/fuzz/fuzzing.py


def pytest_terminal_summary(terminalreporter):
    """The counts of the exit codes."""
    from fuzzing import COUNTS

    if not COUNTS:
        return
    terminalreporter.section("fuzzing")
    for test, codes in COUNTS.items():
        counts = ", ".join(f"exit {code}: {n}" for code, n in sorted(codes.items()))
        terminalreporter.write_line(f"{test:16} {counts}")
    total = sum(sum(codes.values()) for codes in COUNTS.values())
    terminalreporter.write_line(f"{'all':16} {total} commands")


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
