"""Energy metering and GPU settings of the machines of a run: one rank per machine reads and applies them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch

from hpctrip.device.counters import machine
from hpctrip.device.meter import Meter, Metering, meter_ranks, open_meter
from hpctrip.device.recovery_log import leftovers
from hpctrip.device.settings import Applied, GpuSettings, SettingsProcess
from hpctrip.ranks.base import Ranks
from hpctrip.ranks.device import gpu_identity


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

    def meter(self, rules: Metering) -> Meter:
        """Open the meter of this rank; it reads nothing where another rank of the machine is in charge."""
        return open_meter(rules, self.gpus) if self.is_in_charge else Meter()

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
