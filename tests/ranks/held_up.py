"""A program for mpirun (see test_guardian.py): hpctrip, whose rank 1 never comes through an import."""

import builtins
import time

from hpctrip.base.process import launched_rank
from hpctrip.cli.main import main

original = builtins.__import__


def held_up(name, *args, **options):
    if name == "torch":
        time.sleep(1000)  # a dead file system
    return original(name, *args, **options)


if launched_rank() == 1:
    builtins.__import__ = held_up
main()
