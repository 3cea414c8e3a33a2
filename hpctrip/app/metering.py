"""The energy of a run: who reads which counters, and what becomes of the readings."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from hpctrip.device.machine import machine
from hpctrip.device.meter import PHASES, Meter, Metering, meter_ranks, open_meter
from hpctrip.learn.counters import Tally
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.device import gpu_identity


@dataclass(frozen=True)
class Energy:
    """What a rank does for the energy of its machine: nothing, unless it is the one that reads the counters."""

    meter: Meter = field(default_factory=Meter)
    num_machines: int = 0
    """Machines of the run; 0: nobody meters."""

    def lap(self, phase: str) -> None:
        """This phase of the round ends."""
        self.meter.lap(phase)

    def note(self, tally: Tally) -> None:
        """The round ends: into the counters with what the machine drew in it."""
        phases_uj = self.meter.round_uj()
        if phases_uj is None:
            return
        tally.integers["metered"][0] = 1
        for phase, drawn_uj in phases_uj.items():
            tally.integers[f"{phase}_wall_j"][0] = drawn_uj

    def joules(self, evaluated: Tally) -> dict[str, float]:
        """{column: joules} of all machines in a round, by phase and together; empty where one's are not known."""
        if not 0 < self.num_machines == evaluated.integers["metered"][0]:
            return {}
        names = [f"{phase}_wall_j" for phase in PHASES]
        phases = {name: float(evaluated.values(name)[0]) for name in names}
        return phases | {"wall_j": sum(phases.values())}


def energy_of(rules: Metering, ranks: Ranks, device: torch.device) -> Energy:
    """This rank's part, as one rank of each machine reads its counters. A collective; `device` is this rank's."""
    mine = machine(), gpu_identity(device)
    known = ranks.gather(mine)
    everyone = ranks.lead(lambda: known)
    readers = meter_ranks([name for name, _ in everyone], ranks.hosts)
    if ranks.rank not in readers:
        return Energy(num_machines=len(readers))
    gpus = sorted({gpu for name, gpu in everyone if name == mine[0] and gpu})
    return Energy(open_meter(rules, gpus), len(readers))
