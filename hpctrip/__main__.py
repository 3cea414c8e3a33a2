"""`python -m hpctrip`: the command line."""

from __future__ import annotations

from typing import NoReturn

from hpctrip.ranks.start import share_start


def main() -> NoReturn:
    """Entry point: run the command line, where it can in a process that has loaded large packages already."""
    share_start(_preload)
    from hpctrip.cli.main import main

    main()


def _preload() -> None:
    from hpctrip.runner.preload import preload  # heavy

    preload()


if __name__ == "__main__":
    main()
