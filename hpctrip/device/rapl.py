"""The energy counters of CPUs: RAPL, as Linux shows it in /sys/class/powercap (Intel's and AMD's alike).

https://docs.kernel.org/power/powercap/powercap.html: a zone is a folder with its `name`, its counter `energy_uj` and
`max_energy_range_uj`, beyond which the counter begins at 0 again. On most systems only root may read the counters.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from hpctrip.device.source import MICRO, Unavailable

TREE = Path("/sys/class/powercap")
MOST_W = 500.0
"""Taken for the most that a zone draws where the system names no limit of it."""
_DIGITS = 32


class Zone:
    """One counter. Kept open: a reading is one system call."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic):
        """Raises Unavailable where it cannot be read. `clock` is the wall clock in seconds."""
        self._path, self._clock = folder / "energy_uj", clock
        try:
            self.name = (folder / "name").read_text().strip()
            self._range_uj = int((folder / "max_energy_range_uj").read_text())
            self._file = self._path.open("rb", buffering=0)
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._path}: {_reason(error)}") from error
        self._wraps_after_s = self._range_uj / MICRO / _most_w(folder)
        self._last_uj, self._read_at, self._total_uj = self._counter_uj(), clock(), 0

    def read_uj(self) -> int:
        """Microjoules since the zone was opened. Raises Unavailable where the last reading is so long ago that the
        counter may have begun anew more than once; the next reading goes on from this one."""
        found, now = self._counter_uj(), self._clock()
        waited_s, self._read_at = now - self._read_at, now
        drawn = found - self._last_uj
        self._last_uj = found
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


class Cpus:
    """The packages of this machine, and their memory where that is counted on its own."""

    def __init__(self, zones: list[Zone]):
        self.zones = zones
        packages = sum(zone.name.startswith("package") for zone in zones)
        memory = " with memory" if packages < len(zones) else ""
        self.name = f"{packages} CPU package{'s' if packages > 1 else ''}{memory} (RAPL)"

    def read_uj(self) -> int:
        """Of all of them. Every zone is read, whichever of them cannot be."""
        total, failure = 0, None
        for zone in self.zones:
            try:
                total += zone.read_uj()
            except Unavailable as error:
                failure = error
        if failure:
            raise failure
        return total


def cpus(tree: Path | None = None) -> Cpus:
    """The counters of this machine. Raises Unavailable where it has none, or where they may not be read.

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
    if not any(zone.name.startswith("package") for zone in zones):
        raise Unavailable(f"no CPU counters (RAPL) in {tree}")
    return Cpus(zones)


def _most_w(folder: Path) -> float:
    """What the zone draws at most, by its own limits."""
    limits = [MOST_W]
    for file in folder.glob("constraint_*_power_limit_uw"):
        try:
            limits.append(int(file.read_text()) / MICRO)
        except (OSError, ValueError):
            continue
    return max(limits)


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "holds no number"
