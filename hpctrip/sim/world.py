"""The true world: sites, WAN and power. Policies never see it; they see the profiler's view."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hpctrip.sim.network import Network
from hpctrip.sim.power import PowerModel, PowerSupply
from hpctrip.sim.sites import SiteLaw
from hpctrip.sim.throughput import Throughput
from hpctrip.sim.timing import RoundTiming, Timing


@dataclass(frozen=True)
class World:
    """N sites around one aggregator. Arrays [N]."""

    distance_m: np.ndarray
    bandwidth_bps: np.ndarray
    delay_s: np.ndarray
    """L_i of each site alone (Eq. 3)."""
    update_bytes: float
    supply: PowerSupply
    throughput: Throughput
    network: Network
    timing: Timing

    @classmethod
    def build(
        cls,
        sites: SiteLaw,
        network: Network,
        power: PowerModel,
        throughput: Throughput,
        timing: Timing,
        payload_bytes: float,
        seed: int,
    ) -> World:
        """The world of one seed. `payload_bytes` is M where the network says "auto"."""
        distance_m = sites.distances_m(seed)
        bandwidth_bps = network.bandwidth_bps(distance_m)
        update_bytes = payload_bytes if network.update_bytes == "auto" else network.update_bytes
        return cls(
            distance_m,
            bandwidth_bps,
            network.delay_s(distance_m, bandwidth_bps, update_bytes),
            float(update_bytes),
            power.supply(len(distance_m), seed),
            throughput,
            network,
            timing,
        )

    def __len__(self) -> int:
        return len(self.distance_m)

    def power_fraction(self, clock_s: float) -> np.ndarray:
        """P_i(t): share of its full throughput that each site's power allows, [N]."""
        return self.throughput.fraction(self.supply.fraction(clock_s))

    def round_timing(self, start_s: float, cohort: np.ndarray, work_s: np.ndarray) -> RoundTiming:
        """Simulated timing of a round of `cohort` [k]; `work_s` is c_i of all sites [N]."""
        return self.timing.round_timing(
            lambda t: self.power_fraction(t)[cohort],
            self.supply.step_s,
            start_s,
            work_s[cohort],
            float(work_s.sum()),
            self.network.contended_s(self.delay_s[cohort], self.update_bytes),
        )
