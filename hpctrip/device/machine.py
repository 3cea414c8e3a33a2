"""Which machine a process is on."""

from __future__ import annotations

import socket
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """What tells this start of this machine's kernel from all others, the same in every container on it; empty where
    the system names none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def machine() -> str:
    """What tells this machine from the others of a job: containers have names of their own, but share the counters."""
    return boot_id() or socket.gethostname()
