"""Energy counters: their contract, those of CPUs, and a constant for a machine without any (those of GPUs: `nvml`).

CPUs count in RAPL, as Linux shows it in /sys/class/powercap (Intel's and AMD's alike;
https://docs.kernel.org/power/powercap/powercap.html): a zone is a folder with its `name`, its counter `energy_uj` and
`max_energy_range_uj`, beyond which the counter begins at 0 again. On most systems only root may read the counters.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MICRO = 1_000_000
"""Microjoules in a joule. Energy is counted in whole microjoules, so that sums over phases and nodes are exact."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TREE = Path("/sys/class/powercap")
ZONE_MOST_W = 500.0
"""Largest power of a zone for which the system names no limit."""
_DIGITS = 32


class Unavailable(Exception):
    """A counter that cannot be read, or a setting that cannot be made. Its text is the reason, a phrase."""


class EnergyCounter(Protocol):
    """Counts the energy of one device, or of several together."""

    name: str
    """Description for users, e.g. "1 GPU (NVML)"."""

    def read_uj(self) -> int:
        """Microjoules since some moment before the run; never falls. Raises Unavailable."""
        ...


@dataclass
class Assumed:
    """A constant draw, for a machine that counts nothing. Its name says that it was assumed."""

    watts: float
    clock: Callable[[], float] = time.perf_counter
    """Seconds since some moment."""

    @property
    def name(self) -> str:
        """With the power."""
        return f"assumed {self.watts:g} W"

    def read_uj(self) -> int:
        """Watts times seconds."""
        return round(self.watts * self.clock() * MICRO)


def boot_id() -> str:
    """Identifier of this start of this machine's kernel, the same in every container on it; empty where the system has
    none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def machine() -> str:
    """Identifier of this machine among those of a job: containers have names of their own, but share the counters."""
    return boot_id() or socket.gethostname()


class Zone:
    """The counter of one RAPL zone. Its file stays open: a reading is one system call."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        """Raises Unavailable where it cannot be read. `clock` is the wall clock in seconds."""
        self._path, self._clock = folder / "energy_uj", clock
        try:
            self.name = (folder / "name").read_text().strip()
            self._range_uj = int((folder / "max_energy_range_uj").read_text())
            self._file = self._path.open("rb", buffering=0)
        except (OSError, ValueError) as error:
            path = getattr(error, "filename", None) or self._path
            raise Unavailable(f"{path}: {_reason(error)}") from error
        limits_w = [ZONE_MOST_W]
        for file in folder.glob("constraint_*_power_limit_uw"):
            with suppress(OSError, ValueError):
                limits_w.append(int(file.read_text()) / MICRO)
        self._wraps_after_s = self._range_uj / MICRO / max(limits_w)
        self._last_uj, self._read_at, self._total_uj = self._counter_uj(), clock(), 0

    def read_uj(self) -> int:
        """Microjoules since the zone was opened. Raises Unavailable where the last reading is so long ago that the
        counter may have begun anew more than once; the next reading goes on from this one."""
        count_uj, now = self._counter_uj(), self._clock()
        waited_s, self._read_at = now - self._read_at, now
        drawn = count_uj - self._last_uj
        self._last_uj = count_uj
        self._total_uj += drawn if drawn >= 0 else drawn + self._range_uj
        if waited_s > self._wraps_after_s:
            raise Unavailable(
                f"{self._path}: not read for {waited_s:.0f} s, it may have wrapped around twice"
            )
        return self._total_uj

    def _counter_uj(self) -> int:
        try:
            return int(os.pread(self._file.fileno(), _DIGITS, 0))
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._path}: {_reason(error)}") from error


@dataclass
class CounterGroup:
    """Several devices that are counted together."""

    name: str
    counters: Sequence[EnergyCounter]

    def read_uj(self) -> int:
        """Sum over the devices. All are read, also where one of them fails."""
        total, failure = 0, None
        for counter in self.counters:
            try:
                total += counter.read_uj()
            except Unavailable as error:
                failure = error
        if failure:
            raise failure
        return total


def cpus(tree: Path | None = None) -> CounterGroup:
    """The counters of this machine's CPU packages, and of their memory where that is counted on its own. Raises
    Unavailable where there are none, or where they may not be read.

    Cores and graphics are part of their package and "psys" holds the packages, so these are not counted again.
    """
    tree = tree or TREE
    zones = []
    for folder in sorted(tree.glob("intel-rapl:*")):
        try:
            name = (folder / "name").read_text().strip()
        except OSError:
            continue
        if name.startswith("package") or name == "dram":
            zones.append(Zone(folder))
    packages = sum(zone.name.startswith("package") for zone in zones)
    if not packages:
        raise Unavailable(f"no CPU counters (RAPL) in {tree}")
    memory = " with memory" if packages < len(zones) else ""
    return CounterGroup(f"{packages} CPU package{'s' if packages > 1 else ''}{memory} (RAPL)", zones)


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "holds no number"
