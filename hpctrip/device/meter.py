"""What a machine draws, phase by phase: read where one phase ends and the next begins, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from hpctrip.base.component import Component
from hpctrip.base.text import printable
from hpctrip.base.units import Watts
from hpctrip.device import nvml, rapl
from hpctrip.device.source import Assumed, Source, Unavailable

PHASES = ("record", "train", "exchange", "evaluate")
"""Of a round, in their order, as the machine's meter sees them: they touch, so every joule belongs to one of them."""


MOST_W = 1e6
"""Of one machine."""


class Metering(Component):
    """The energy that the run itself draws, measured where a machine counts it; nothing here changes a result."""

    enabled: bool = True
    """Read the counters of the GPUs that train (NVML, needs the extra `[energy]`) and of the CPUs (RAPL, which most
    systems let root alone read)."""
    assumed_w: Watts | None = Field(None, gt=0, le=MOST_W)
    """What a machine draws that counts nothing, constant; the results say that it was assumed. Absent: where one
    machine of the run counts nothing, no joules are recorded."""


class Meter:
    """The joules of one machine by phase. A meter without sources counts nothing and costs nothing."""

    def __init__(self, sources: Sequence[Source] = (), said: str = ""):
        """`said` are the sources, and what is not counted and why, in words."""
        self.sources, self.said = sources, said
        self._last_uj: int | None = None
        self._phases_uj = dict.fromkeys(PHASES, 0)
        self._is_whole = True

    def lap(self, phase: str) -> None:
        """`phase` ends now: what was drawn since the last lap is its own. The first lap only begins the count."""
        if not self.sources:
            return
        try:
            now_uj = sum([source.read_uj() for source in self.sources])
        except Unavailable:
            self._last_uj, self._is_whole = None, False
            return
        if self._last_uj is not None:
            self._phases_uj[phase] += now_uj - self._last_uj
        self._last_uj = now_uj

    def round_uj(self) -> dict[str, int] | None:
        """Microjoules by phase since the last call, which begins the next round's count; None: not known, because a
        counter could not be read in between."""
        found = self._phases_uj if self.sources and self._is_whole else None
        self._phases_uj = dict.fromkeys(PHASES, 0)
        self._is_whole = self._last_uj is not None
        return found


def open_meter(rules: Metering, gpu_uuids: Sequence[str]) -> Meter:
    """The meter of this machine, for the GPUs in use and all CPUs; without sources where it has none."""
    if not rules.enabled:
        return Meter(said="switched off (meter.enabled)")
    sources: list[Source] = []
    missing: list[str] = []
    for source in (lambda: nvml.Gpus(nvml.gpus(gpu_uuids)), rapl.cpus)[not gpu_uuids :]:
        try:
            sources.append(source())
        except Unavailable as error:
            missing.append(str(error))
    if not sources and rules.assumed_w is not None:
        sources = [Assumed(rules.assumed_w)]
    counted = " and ".join(source.name for source in sources) or "nothing"
    said = f"{counted} (not counted: {'; '.join(missing)})" if missing else counted
    return Meter(sources, printable(said, 300))


def meter_ranks(machines: Sequence[str], hosts: range) -> list[int]:
    """The rank that reads the counters of each machine, given every rank's machine: the first that trains there, as
    its phases are those in which energy is spent; where none does, the first one."""
    chosen: dict[str, int] = {}
    for rank in (*hosts, *range(len(machines))):
        chosen.setdefault(machines[rank], rank)
    return sorted(chosen.values())
