"""Prints what became of all the examples."""

import sys
from pathlib import Path

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
