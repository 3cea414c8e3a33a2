"""What the aggregator does about its memory."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3  # of glibc's malloc.h
_LARGE_BYTES = 65_536


def map_large_blocks() -> None:
    """Let this process's large vectors come from the system one by one, and go back to it; glibc only, else nothing.

    By default glibc cuts them from its heap once one has been freed, and the history's rows in between keep the heap
    from shrinking: rank 0 grew by 0.4 to 0.9 MB a round of a model of 0.8 MB. For an aggregator that trains nothing: a
    host would map and unmap every activation.
    """
    with contextlib.suppress(OSError, AttributeError):  # no C library by that name, or one without mallopt
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
