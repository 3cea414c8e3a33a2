"""Energy metering and GPU settings of the machines of a run: one rank per machine reads and applies them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from hpctrip.device.counters import MICRO, machine
from hpctrip.device.meter import PHASES, Meter, Metering, meter_ranks, open_meter
from hpctrip.device.recovery_log import leftovers
from hpctrip.device.settings import Applied, GpuSettings, SettingsProcess
from hpctrip.learn.counters import Tally
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.device import gpu_identity


@dataclass(frozen=True)
class Energy:
    """Meters the energy of a rank's machine, at the one rank of each machine that reads its counters."""

    meter: Meter = field(default_factory=Meter)
    num_machines: int = 0
    """Number of machines of the run; 0: none is metered."""

    def lap(self, phase: str) -> None:
        """End a phase of the round."""
        self.meter.lap(phase)

    def note(self, tally: Tally, rank: int) -> None:
        """End a round: put the machine's energy into this rank's counters."""
        phases_uj = self.meter.round_uj()
        if phases_uj is None:
            return
        tally.integers["metered"][rank] = 1
        for phase, drawn_uj in phases_uj.items():
            tally.integers[f"{phase}_wall_j"][rank] = drawn_uj

    def joules(self, evaluated: Tally) -> dict[str, float]:
        """{column: joules} of all machines in a round, by phase and in total; empty where a machine was not metered."""
        if not 0 < self.num_machines == evaluated.integers["metered"].sum():
            return {}
        names = [f"{phase}_wall_j" for phase in PHASES]
        phases = {name: float(evaluated.integers[name].sum() / MICRO) for name in names}
        return phases | {"wall_j": sum(phases.values())}


@dataclass(frozen=True)
class LocalMachine:
    """The machine of this rank."""

    num_machines: int
    """Number of machines of the run."""
    is_in_charge: bool
    """Whether this rank reads the counters and applies the settings; one rank of each machine does."""
    gpus: list[str]
    """The GPUs that train here, by their UUIDs."""

    @classmethod
    def of(cls, ranks: Ranks, device: torch.device) -> LocalMachine:
        """The machine of this rank, which computes on `device`. A collective."""
        mine = machine(), gpu_identity(device)
        gathered = ranks.gather(mine)
        everyone = ranks.decide_on_root(lambda: gathered)
        in_charge = meter_ranks([name for name, _ in everyone], ranks.hosts)
        gpus = sorted({gpu for name, gpu in everyone if name == mine[0] and gpu})
        return cls(len(in_charge), ranks.rank in in_charge, gpus)

    def energy(self, rules: Metering) -> Energy:
        """Open the meter of this rank; it reads nothing where another rank of the machine is in charge."""
        meter = open_meter(rules, self.gpus) if self.is_in_charge else Meter()
        return Energy(meter, self.num_machines)

    def apply(self, settings: GpuSettings, until: ExitStack) -> Applied:
        """Apply settings to the GPUs of this machine; closing `until` restores the previous ones."""
        if not (self.is_in_charge and settings.any):
            return Applied()
        if not self.gpus:
            return Applied(refused=("no GPU trains here",))
        return until.enter_context(SettingsProcess(self.gpus)).apply(settings)

    def left_behind(self) -> list[str]:
        """Warnings about GPU settings that killed runs have left on this machine."""
        hint = "`python -m hpctrip knobs --restore` there puts it back"
        return [f"warning: {left}; {hint}" for left in leftovers()] if self.is_in_charge else []
