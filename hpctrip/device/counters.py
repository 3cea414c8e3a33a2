"""Energy counters: their contract, those of CPUs, and a constant for a machine without any (those of GPUs: `nvml`).

CPUs count in RAPL, as Linux shows it in /sys/class/powercap (Intel's and AMD's alike;
https://docs.kernel.org/power/powercap/powercap.html): a zone is a folder with its `name`, its counter `energy_uj` and
`max_energy_range_uj`, beyond which the counter begins at 0 again. On most systems only root may read the counters.

No counter is believed whatever it says: drivers and virtual machines show counters that stand still, that show one
device twice, or that are set back to 0 (see `working`, `Zone.mirrors` and `CheckedCounter`).
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from hpctrip.base.text import counted

MICRO = 1_000_000
"""Microjoules in a joule. Energy is counted in whole microjoules, so that sums over phases and nodes are exact."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TREE = Path("/sys/class/powercap")
PACKAGE_MOST_W, MEMORY_MOST_W = 550.0, 250.0
"""Largest power of a CPU package and of its memory where the system names no larger limit."""
_UNLIMITED_W = 1000.0
"""A larger limit is none: firmware without one shows 4095.875 W, for memory also 3408 W."""
STEP_S = 1.0
"""Longest time between two steps of a counter that works: those of GPUs advance every 20 to 100 ms."""
_POLL_S = 0.005
_ATTEMPTS = 100
"""Times that a counter which shows no number is read once more: its file may just be replaced."""
_RAPL_STEP_S = 0.002
_DIGITS = 32


class Unavailable(Exception):
    """A counter that cannot be read, or a setting that cannot be made. Its text is the reason, a phrase."""


class EnergyCounter(Protocol):
    """The energy counter of one device, as the device shows it."""

    place: str
    """The file or device that shows it, for messages."""
    most_w: float
    """Largest power that the device can draw."""
    range_uj: int
    """Microjoules after which the counter begins at 0 again; 0: never."""

    def read_uj(self) -> int:
        """Microjoules since some moment. Raises Unavailable."""
        ...


Counter = TypeVar("Counter", bound=EnergyCounter)
T = TypeVar("T")


class CheckedCounter:
    """The energy of one device as far as its counter is plausible: between two readings the device draws no less than
    nothing and no more than its largest power."""

    def __init__(self, counter: EnergyCounter, clock: Callable[[], float] = time.monotonic):
        """`clock` is the wall clock in seconds."""
        self._counter, self._clock = counter, clock
        self._last: tuple[int, float] | None = None
        """The last reading and its time."""
        self._total_uj = 0

    def read_uj(self) -> int:
        """Microjoules since the first reading. Raises Unavailable where those since the last one are not known; the
        next reading goes on from this one."""
        counter, last = self._counter, self._last
        count_uj, now = counter.read_uj(), self._clock()
        self._last = count_uj, now
        if last is None:
            return 0
        drawn_uj, waited_s = count_uj - last[0], now - last[1]
        if drawn_uj < 0:
            drawn_uj += counter.range_uj
        if counter.range_uj and drawn_uj + counter.range_uj <= waited_s * counter.most_w * MICRO:
            raise Unavailable(
                f"{counter.place}: not read for {waited_s:.0f} s, it may have wrapped around twice"
            )
        if not 0 <= drawn_uj <= (waited_s + STEP_S) * counter.most_w * MICRO:
            raise Unavailable(
                f"{counter.place}: {drawn_uj / MICRO:g} J in {waited_s:.3g} s are not possible (at most "
                f"{counter.most_w:g} W): it was set back"
            )
        self._total_uj += drawn_uj
        return self._total_uj


@dataclass
class Assumed:
    """A constant draw, for a machine that counts nothing."""

    watts: float
    clock: Callable[[], float] = time.perf_counter
    """Seconds since some moment."""
    place = "meter.assumed_w"
    most_w = math.inf
    range_uj = 0

    def read_uj(self) -> int:
        """Watts times seconds."""
        return round(self.watts * self.clock() * MICRO)


@dataclass(frozen=True)
class Counters:
    """The counters of one kind of device on this machine."""

    name: str
    """Description for users, e.g. "1 GPU (NVML)"."""
    counters: Sequence[EnergyCounter]
    not_counted: Sequence[str] = ()
    """Counters that are left out, with the reason, a line each."""


def working(open_one: Callable[[T], Counter], devices: Iterable[T]) -> tuple[list[Counter], list[str]]:
    """The counters of those devices that can be read and advance within `STEP_S`, and a line for each of the others,
    which count nothing, as in many virtual machines. `open_one` may raise Unavailable."""
    counters: list[Counter] = []
    not_counted: list[str] = []
    for device in devices:
        try:
            counters.append(open_one(device))
        except Unavailable as error:
            not_counted.append(str(error))
    seen_uj: list[set[int]] = [set() for _ in counters]
    idle = {at: "" for at in range(len(counters))}  # with the reason
    for attempt in range(round(STEP_S / _POLL_S)):
        for at in list(idle):
            try:
                seen_uj[at].add(now_uj := counters[at].read_uj())
                idle[at] = f"{counters[at].place}: stands still at {now_uj}"
            except Unavailable as error:
                idle[at] = str(error)
            if len(seen_uj[at]) > 1:
                del idle[at]
        if any(seen_uj[at] for at in idle):
            time.sleep(_POLL_S)
        elif not idle or attempt == _ATTEMPTS:  # the others cannot be read
            break
    not_counted += idle.values()
    return [one for at, one in enumerate(counters) if at not in idle], list(dict.fromkeys(not_counted))


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
    """The counter of one RAPL zone: a CPU package, or its memory. Its file stays open: a reading is one system call."""

    def __init__(self, folder: Path):
        """Raises Unavailable where it cannot be read."""
        self._path, self.place = folder / "energy_uj", str(folder / "energy_uj")
        try:
            self.name = (folder / "name").read_text().strip()
            package = folder if self.is_package else folder.with_name(folder.name.rpartition(":")[0])
            self.socket = (package / "name").read_text().strip().partition("-die-")[0]
            """The socket, of which Linux may show each die: package-0 of package-0-die-1."""
            self.range_uj = int((folder / "max_energy_range_uj").read_text())
            self._file = self._path.open("rb", buffering=0)
        except (OSError, ValueError) as error:
            path = getattr(error, "filename", None) or self._path
            raise Unavailable(f"{path}: {_reason(error)}") from error
        self.most_w = PACKAGE_MOST_W if self.is_package else MEMORY_MOST_W
        for file in folder.glob("constraint_*_power_limit_uw"):
            with suppress(OSError, ValueError):
                if (limit_w := int(file.read_text()) / MICRO) <= _UNLIMITED_W:
                    self.most_w = max(self.most_w, limit_w)

    @property
    def is_package(self) -> bool:
        """Whether it is a CPU package; else it is memory."""
        return self.name.startswith("package")

    def mirrors(self, other: Zone) -> bool:
        """Whether this zone shows the counter of another one of its socket once more, as Linux does for each die of
        AMD's Zen 1 and 2. The counters of two dies would differ by what they have drawn since the start."""
        if (self.socket, self.is_package) != (other.socket, other.is_package):
            return False
        before_uj, own_uj, after_uj = other.read_uj(), self.read_uj(), other.read_uj()
        tolerance_uj = _RAPL_STEP_S * self.most_w * MICRO
        return before_uj - tolerance_uj <= own_uj <= after_uj + tolerance_uj

    def read_uj(self) -> int:
        """Microjoules on the counter. Raises Unavailable."""
        try:
            return int(os.pread(self._file.fileno(), _DIGITS, 0))
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._path}: {_reason(error)}") from error


def cpus() -> Counters:
    """The counters of this machine's CPU packages, and of their memory where that is counted on its own. Raises
    Unavailable where there are none, or none may be read.

    Cores and graphics are part of their package and "psys" holds the packages, so these are not counted again.
    """
    advancing, not_counted = working(Zone, filter(_may_count, sorted(TREE.glob("intel-rapl:*"))))
    zones: list[Zone] = []
    for zone in advancing:
        if not any(map(zone.mirrors, zones)):
            zones.append(zone)
    if not zones:
        raise Unavailable("; ".join(not_counted) or f"no CPU counters (RAPL) in {TREE}")
    packages = sum(zone.is_package for zone in zones)
    memory = " with memory" if packages < len(zones) else ""
    return Counters(f"{counted(packages, 'CPU package')}{memory} (RAPL)", zones, not_counted)


def _may_count(folder: Path) -> bool:
    """Whether a zone is a package or memory; also where its name is hidden, as in containers, so that it is named."""
    try:
        name = (folder / "name").read_text().strip()
    except OSError:
        return True
    return name.startswith("package") or name == "dram"


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else "holds no number"
