"""Measures the energy of a machine by phase of a round; counters are read only where a phase ends."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from hpctrip.base.text import printable
from hpctrip.base.units import Watts
from hpctrip.config.component import Component
from hpctrip.device import nvml
from hpctrip.device.counters import Assumed, CheckedCounter, Counters, EnergyCounter, Unavailable, cpus

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
        self._is_whole = True

    def lap(self, phase: str) -> None:
        """End `phase`: the energy since the last lap is counted for it. The first lap only begins the count."""
        if not self.counters:
            return
        now_uj = self._read_uj()
        if now_uj is None:
            self._is_whole = False
        elif self._last_uj is not None:
            self._phases_uj[phase] += now_uj - self._last_uj
        self._last_uj = now_uj

    def _read_uj(self) -> int | None:
        """Sum over the counters; None where one of them is not known. All are read, so that each goes on from here."""
        total_uj, is_known = 0, True
        for counter in self.counters:
            try:
                total_uj += counter.read_uj()
            except Unavailable:
                is_known = False
        return total_uj if is_known else None

    def round_uj(self) -> dict[str, int] | None:
        """Microjoules by phase since the last call; the next round's count begins. None: not known, because a counter
        could not be read in between."""
        phases_uj = self._phases_uj if self.counters and self._is_whole else None
        self._phases_uj = dict.fromkeys(PHASES, 0)
        self._is_whole = self._last_uj is not None
        return phases_uj


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
