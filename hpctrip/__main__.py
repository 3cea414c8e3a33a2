"""`python -m hpctrip`: the command line."""

from hpctrip.cli.main import cli, main

__all__ = ["cli", "main"]

if __name__ == "__main__":
    main()
