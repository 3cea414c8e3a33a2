"""A program for mpirun (see test_guardian.py): hpctrip, of which rank 1 is held up in the way that $HELD_UP says."""

import builtins
import os
import signal
import time

from hpctrip.cli.main import main
from hpctrip.ranks.launched import launched_rank

how = os.environ["HELD_UP"] if launched_rank() == 1 else ""
if how == "never starts":
    time.sleep(1000)
original = builtins.__import__


def held_up(name, *args, **options):
    if name == "torch":
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1000)  # a dead file system
    return original(name, *args, **options)


if how:
    builtins.__import__ = held_up
main()
