"""`python -m hpctrip`."""

from hpctrip.app.cli import main

main()
