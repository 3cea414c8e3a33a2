"""Measures the energy of a machine by phase of a round: counters are read where a phase ends, and in long phases so
often that none wraps around unseen."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence

from pydantic import Field

from hpctrip.base.text import printable
from hpctrip.base.units import Watts
from hpctrip.config.component import Component
from hpctrip.device import nvml
from hpctrip.device.counters import MICRO, Assumed, CheckedCounter, Counters, EnergyCounter, Unavailable, cpus

log = logging.getLogger(__name__)

PHASES = ("record", "train", "exchange", "evaluate")
"""The phases of a round, in their order, without gaps: every joule belongs to one of them."""
MOST_W = 1e6
"""Upper bound on the power of one machine."""


class Metering(Component):
    """Measured energy of the run itself; nothing here changes a result."""

    enabled: bool = True
    """Read the counters of the GPUs that train (NVML, needs the extra `[energy]`) and of the CPUs (RAPL, which most
    systems restrict to root)."""
    assumed_w: Watts | None = Field(None, gt=0, le=MOST_W)
    """Constant power of a machine without counters; the results are marked as assumed. Absent: if a machine of the run
    has no counters, no joules are recorded."""


class Meter:
    """The energy of one machine by phase. A meter without counters counts nothing and costs nothing."""

    def __init__(self, counters: Sequence[EnergyCounter] = (), description: str = ""):
        """`description` names the counters, and what is not counted and why, for people."""
        self.counters, self.description = [CheckedCounter(counter) for counter in counters], description
        self._last_uj: int | None = None
        self._phases_uj = dict.fromkeys(PHASES, 0)
        self._is_whole, self._has_warned = True, False
        self._lock = threading.Lock()
        pauses_s = [counter.range_uj / MICRO / counter.most_w / 2 for counter in counters if counter.range_uj]
        if pauses_s:
            weakref.finalize(self, (over := threading.Event()).set)
            arguments = weakref.ref(self), min(pauses_s), over
            threading.Thread(target=_read_in_between, args=arguments, daemon=True).start()

    def lap(self, phase: str) -> None:
        """End `phase`: the energy since the last lap is counted for it. The first lap only begins the count."""
        now_uj = self.read_uj() if self.counters else None
        if now_uj is not None and self._last_uj is not None:
            self._phases_uj[phase] += now_uj - self._last_uj
        self._last_uj = now_uj

    def read_uj(self) -> int | None:
        """Sum over the counters; None where one of them is not known: neither is then the round. All are read, so that
        each goes on from here."""
        total_uj, problem = 0, ""
        with self._lock:
            for counter in self.counters:
                try:
                    total_uj += counter.read_uj()
                except Unavailable as error:
                    problem = str(error)
        if not problem:
            return total_uj
        self._is_whole = False
        if not self._has_warned:
            log.warning("the energy of this round is not known: %s", problem)
            self.description += printable(f"; not known in some rounds: {problem}", 300)
            self._has_warned = True
        return None

    def round_uj(self) -> dict[str, int] | None:
        """Microjoules by phase since the last call; the next round's count begins. None: not known, because a counter
        could not be read in between."""
        phases_uj = self._phases_uj if self.counters and self._is_whole else None
        self._phases_uj = dict.fromkeys(PHASES, 0)
        self._is_whole = self._last_uj is not None
        return phases_uj


def _read_in_between(meter: weakref.ref[Meter], pause_s: float, over: threading.Event) -> None:
    """Read the counters of a meter every `pause_s`, half of the time in which one may wrap around, until it is gone."""
    while not over.wait(pause_s):
        if alive := meter():
            alive.read_uj()
            del alive


def open_meter(rules: Metering, gpu_uuids: Sequence[str]) -> Meter:
    """The meter of this machine, for the GPUs in use and all CPUs; without counters where it has none."""
    if not rules.enabled:
        return Meter(description="switched off (meter.enabled)")
    groups: list[Counters] = []
    missing: list[str] = []
    for open_counters in [lambda: nvml.energy_of(gpu_uuids), cpus] if gpu_uuids else [cpus]:
        try:
            groups.append(open_counters())
            missing += groups[-1].not_counted
        except Unavailable as error:
            missing.append(str(error))
    if not groups and rules.assumed_w is not None:
        groups = [Counters(f"assumed {rules.assumed_w:g} W", [Assumed(rules.assumed_w)])]
    names = " and ".join(counters.name for counters in groups) or "nothing"
    description = f"{names} (not counted: {'; '.join(missing)})" if missing else names
    return Meter([one for counters in groups for one in counters.counters], printable(description, 300))


def meter_ranks(machines: Sequence[str], hosts: range) -> list[int]:
    """The ranks that read counters, one for each of the machines (one entry a rank): the first that trains there, as
    energy is spent in its phases; where none does, the first one."""
    chosen: dict[str, int] = {}
    for rank in (*hosts, *range(len(machines))):
        chosen.setdefault(machines[rank], rank)
    return sorted(chosen.values())
