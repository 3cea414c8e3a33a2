"""The machines of a run: who reads their counters and makes their settings, and what becomes of the readings."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch

from hpctrip.device.knobs import Keeper, Knobs, Turned
from hpctrip.device.machine import machine
from hpctrip.device.meter import PHASES, Meter, Metering, meter_ranks, open_meter
from hpctrip.device.notes import leftovers
from hpctrip.device.source import MICRO
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

    def note(self, tally: Tally, rank: int) -> None:
        """The round ends: into this rank's counters with what the machine drew in it."""
        phases_uj = self.meter.round_uj()
        if phases_uj is None:
            return
        tally.integers["metered"][rank] = 1
        for phase, drawn_uj in phases_uj.items():
            tally.integers[f"{phase}_wall_j"][rank] = drawn_uj

    def joules(self, evaluated: Tally) -> dict[str, float]:
        """{column: joules} of all machines in a round, by phase and together; empty where one's are not known."""
        if not 0 < self.num_machines == evaluated.integers["metered"].sum():
            return {}
        names = [f"{phase}_wall_j" for phase in PHASES]
        phases = {name: float(evaluated.integers[name].sum() / MICRO) for name in names}
        return phases | {"wall_j": sum(phases.values())}


@dataclass(frozen=True)
class LocalMachine:
    """A rank's machine, as the rank sees it."""

    num_machines: int
    """Of the run."""
    is_in_charge: bool
    """One rank of each machine is, for its counters and its settings."""
    gpus: list[str]
    """The GPUs that train here, by their UUIDs."""

    @classmethod
    def of(cls, ranks: Ranks, device: torch.device) -> LocalMachine:
        """A collective; `device` is this rank's."""
        mine = machine(), gpu_identity(device)
        known = ranks.gather(mine)
        everyone = ranks.lead(lambda: known)
        in_charge = meter_ranks([name for name, _ in everyone], ranks.hosts)
        gpus = sorted({gpu for name, gpu in everyone if name == mine[0] and gpu})
        return cls(len(in_charge), ranks.rank in in_charge, gpus)

    def energy(self, rules: Metering) -> Energy:
        """What the rank does for the energy of its machine."""
        meter = open_meter(rules, self.gpus) if self.is_in_charge else Meter()
        return Energy(meter, self.num_machines)

    def turn(self, knobs: Knobs, until: ExitStack) -> Turned:
        """Make the settings of this machine's GPUs, until `until` closes."""
        if not (self.is_in_charge and knobs.turns):
            return Turned()
        if not self.gpus:
            return Turned(refused=("no GPU trains here",))
        return until.enter_context(Keeper(self.gpus)).turn(knobs)

    def left_behind(self) -> list[str]:
        """What to tell of settings that killed runs have left on this machine."""
        way_out = "`python -m hpctrip knobs --restore` there puts it back"
        return [f"warning: {left}; {way_out}" for left in leftovers()] if self.is_in_charge else []
