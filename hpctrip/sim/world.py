"""The true world: sites, WAN and power. Policies never see it; they see the profiler's view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hpctrip.base.door import config_key, numbers
from hpctrip.base.errors import InputError
from hpctrip.sim.accounts import ENERGY_ONLY, Bill, Billing, Meter
from hpctrip.sim.faults import NO_FAULTS, Faults, FaultSchedule
from hpctrip.sim.network import Network
from hpctrip.sim.power import PowerModel, PowerSupply, mean_fraction
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SiteLaw
from hpctrip.sim.throughput import Throughput
from hpctrip.sim.timing import LONGEST_ROUND_S, RoundTiming, Timing


@dataclass(frozen=True)
class World:
    """N sites around one aggregator. Arrays [N]."""

    distance_m: np.ndarray
    bandwidth_bps: np.ndarray
    comm_s: np.ndarray
    """L_i of each site alone (Eq. 3)."""
    link_s: float
    """Seconds that one site's transfer takes of the aggregator's own link, which the cohort shares; 0: no bound."""
    update_bytes: float
    """M as it travels up: compressed."""
    model_bytes: float
    """What travels down in a round trip: M uncompressed."""
    power: PowerModel
    supply: PowerSupply
    throughput: Throughput
    timing: Timing
    faults: FaultSchedule
    meter: Meter

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
        faults: Faults = NO_FAULTS,
        sent_fraction: float = 1.0,
        billing: Billing = ENERGY_ONLY,
    ) -> World:
        """The world of one seed. `payload_bytes` is M where the network says "auto"; `sent_fraction` is the share of M
        that compression leaves for the way up. InputError where a component of it gives what it must not."""
        distance_m = sites.checked_distances_m(seed)
        shape, largest = distance_m.shape, np.finfo(float).max
        bandwidth_bps = numbers(
            network.bandwidth_bps(distance_m),
            shape,
            0.0,
            np.inf,
            config_key("network", network),
            "the bandwidths",
        )
        model_bytes = float(payload_bytes if network.update_bytes == "auto" else network.update_bytes)
        update_bytes = model_bytes * sent_fraction
        supply = power.checked_supply(len(distance_m), seed)
        comm_s = network.comm_s(distance_m, bandwidth_bps, update_bytes, model_bytes)
        world = cls(
            distance_m,
            bandwidth_bps,
            numbers(
                comm_s, shape, 0.0, largest, config_key("network", network), "the communication delays in s"
            ),
            network.link_s(update_bytes, model_bytes),
            update_bytes,
            model_bytes,
            power,
            supply,
            throughput,
            timing,
            faults.schedule(len(distance_m), seed),
            billing.meter(
                sites, len(distance_m), seed, update_bytes + (model_bytes if network.round_trip else 0.0)
            ),
        )
        # so that a model that is of no use shows before ranks wait for a round
        world.throughput_fraction(0.0)
        throughput.checked_draw_w(world.power_fraction(0.0))
        return world

    def __len__(self) -> int:
        return len(self.distance_m)

    def after(self, history: History) -> Self:
        """The world of the round after `history`, in which sites that have spent a budget are out."""
        spent = self.meter.accounts.spent(history, len(self))
        return replace(self, faults=replace(self.faults, spent=spent)) if spent.any() else self

    def power_fraction(self, clock_s: float) -> np.ndarray:
        """P_i(t), [N]; 0 where a site is out."""
        place, what = config_key("power", self.power), f"the power fractions at {clock_s:g} s"
        power = numbers(self.supply.fraction(clock_s), (len(self),), 0.0, 1.0, place, what)
        return np.where(self.faults.down(clock_s), 0.0, power)

    def mean_power_fraction(self, start_s: float, end_s: float) -> np.ndarray:
        """The mean of P_i(t) between two times, [N]; that at `start_s` where they are one."""
        return mean_fraction(self.power_fraction, self.supply.step_s, start_s, end_s)

    def throughput_of(self, power_fraction: np.ndarray) -> np.ndarray:
        """What the power of each site is worth, [N]: share of its throughput at full power; 0 without power."""
        place, what = config_key("throughput", self.throughput), "the throughput fractions"
        worth = numbers(self.throughput.fraction(power_fraction), (len(self),), 0.0, 1.0, place, what)
        return np.where(power_fraction > 0, worth, 0.0)

    def throughput_fraction(self, clock_s: float) -> np.ndarray:
        """What the sites' power is worth at that time, [N]."""
        return self.throughput_of(self.power_fraction(clock_s))

    def bill(self, start_s: float, cohort: np.ndarray, timing: RoundTiming) -> Bill:
        """What a round from `start_s` with such a timing costs the sites of the cohort [k]: their power over time, the
        same as the clock's, integrated."""
        frozen, outages = self.timing.power == "frozen", self.faults.outages

        def draw_w(clock_s: float) -> tuple[np.ndarray, np.ndarray]:
            power_fraction = self.power_fraction(start_s if frozen else clock_s)[cohort]
            return self.throughput.checked_draw_w(power_fraction)

        step_s = np.inf if frozen else self.supply.step_s
        change_s = None if frozen else lambda t: outages.next_change_s(t, cohort)
        return self.meter.bill(draw_w, step_s, change_s, start_s, cohort, timing)

    def round_timing(self, round: int, start_s: float, cohort: np.ndarray, work_s: np.ndarray) -> RoundTiming:
        """Simulated timing of round number `round` with `cohort` [k]; `work_s` is c_i of all sites [N].

        Who is out at the start is not asked, and who is not back by the deadline is late. Where anybody who was asked
        is missing then, or nobody could be asked, the round lasts until the deadline.
        """
        k, deadline_s = len(cohort), self.faults.deadline_s
        asked = np.flatnonzero(~self.faults.down(start_s)[cohort])
        compute_s, comm_s = np.full(k, np.inf), self.comm_s[cohort].copy()
        status = np.full(k, int(Status.OUT))
        if len(asked) == 0:
            return RoundTiming(compute_s, comm_s, deadline_s, 0, status)
        sites = cohort[asked]
        lost, extra_s = self.faults.wan(round)
        comm_s[asked] = np.maximum(self.comm_s[sites], len(sites) * self.link_s) + extra_s[sites]
        compute_s[asked] = self.timing.elapsed_compute_s(
            lambda t: self.throughput_fraction(t)[sites],
            self.supply.step_s,
            start_s,
            work_s[sites],
            float(work_s.sum()),
            lambda t: self.faults.outages.next_change_s(t, sites),
            deadline_s,
        )
        finish_s = compute_s[asked] + comm_s[asked]
        in_time = np.where(lost[sites], Status.LOST, Status.ARRIVED)
        status[asked] = np.where(finish_s > deadline_s, Status.LATE, in_time)
        makespan_s = self.timing.makespan_s(compute_s, comm_s, status, deadline_s)
        if makespan_s > LONGEST_ROUND_S:
            raise InputError(
                "timing",
                f"round {round} would last {makespan_s:g} s, more than ten simulated years",
                "lower timing.seconds_per_sample, the work of a round or network.update_bytes, or set "
                "faults.deadline_s",
            )
        return RoundTiming(compute_s, comm_s, makespan_s, int(asked[finish_s.argmax()]), status)
