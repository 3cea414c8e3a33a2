"""`python -m hpctrip`: the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from hpctrip.base.process import keep_signals
from hpctrip.ranks.start import share_start

ON_RANKS = ("run", "resume", "retime", "study")
"""Commands that a launcher starts on several ranks, besides the name of an input, which means `run`."""


def main() -> NoReturn:
    """Entry point: run the command line, where it can in a process that has loaded large packages already."""
    if all(word in ON_RANKS or word.endswith(".toml") or _is_shipped(word) for word in sys.argv[1:2]):
        if sys.argv[1:2] != ["study"] or sys.argv[2:3] == ["job"]:  # these start a run
            keep_signals()
        share_start(_preload)
    from hpctrip.cli.main import main

    main()


def _is_shipped(name: str) -> bool:
    """Whether an input file of this name is part of the package; pydantic is not loaded to tell."""
    return Path(__file__).with_name("inputs").joinpath(f"{name}.toml").is_file()


def _preload() -> None:
    from hpctrip.runner.preload import preload  # heavy

    preload()


if __name__ == "__main__":
    main()
