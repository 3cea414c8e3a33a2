"""The true world: sites, WAN and power. Policies never see it; they see the profiler's view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.series import mean, never
from hpctrip.base.validate import numbers
from hpctrip.config.component import config_key
from hpctrip.sim.energy import DEFAULT_ACCOUNTS, Accounts, Meter
from hpctrip.sim.faults import NO_FAULTS, Faults, FaultSchedule
from hpctrip.sim.grid.signals import NO_SIGNAL, SignalModel
from hpctrip.sim.hardware import Throughput
from hpctrip.sim.network import Network
from hpctrip.sim.power import PowerModel, PowerSupply
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SitePlacement
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
    """Bytes that travel down in a round trip: M uncompressed."""
    power: PowerModel
    supply: PowerSupply
    throughput: Throughput
    timing: Timing
    faults: FaultSchedule
    meter: Meter

    @classmethod
    def build(
        cls,
        sites: SitePlacement,
        network: Network,
        power: PowerModel,
        throughput: Throughput,
        timing: Timing,
        payload_bytes: float,
        seed: int,
        faults: Faults = NO_FAULTS,
        sent_fraction: float = 1.0,
        accounts: Accounts = DEFAULT_ACCOUNTS,
        carbon: SignalModel = NO_SIGNAL,
        price: SignalModel = NO_SIGNAL,
    ) -> World:
        """The world of one seed. `payload_bytes` is M where the network says "auto"; `sent_fraction` is the share of M
        that compression leaves for the way up. InputError where a component returns an invalid value."""
        distance_m = sites.checked_distances_m(seed)
        shape, largest = distance_m.shape, np.finfo(float).max
        place, bandwidth_bps = config_key("network", network), network.bandwidth_bps(distance_m)
        bandwidth_bps = numbers(bandwidth_bps, shape, 0.0, np.inf, place, "the bandwidths")
        model_bytes = float(payload_bytes if network.update_bytes == "auto" else network.update_bytes)
        update_bytes = model_bytes * sent_fraction
        sent_bytes = update_bytes + (model_bytes if network.round_trip else 0.0)
        supply = power.checked_supply(len(distance_m), seed)
        signals = {
            table: model.checked_signal(table, sites, len(distance_m), seed)
            for table, model in (("carbon", carbon), ("price", price))
        }
        comm_s = network.comm_s(distance_m, bandwidth_bps, update_bytes, model_bytes)
        world = cls(
            distance_m,
            bandwidth_bps,
            numbers(comm_s, shape, 0.0, largest, place, "the communication delays in s"),
            network.link_s(update_bytes, model_bytes),
            update_bytes,
            model_bytes,
            power,
            supply,
            throughput,
            timing,
            faults.schedule(len(distance_m), seed),
            Meter(accounts, signals, sent_bytes),
        )
        # so that an invalid model is reported before ranks wait for a round
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
        power = numbers(self.supply.at(clock_s), (len(self),), 0.0, 1.0, place, what)
        return np.where(self.faults.down(clock_s), 0.0, power)

    def mean_power_fraction(self, start_s: float, end_s: float) -> np.ndarray:
        """The mean of P_i(t) between two times, [N]; that at `start_s` where they are one. Outages count as they are
        in the middle of each step of the supply."""
        return mean(self.power_fraction, self.supply.next_change_s, start_s, end_s)

    def next_change_s(self, clock_s: float, sites: np.ndarray) -> float:
        """The first time after `clock_s` at which the power of one of these sites may change; inf: never."""
        return min(self.supply.next_change_s(clock_s), self.faults.outages.next_change_s(clock_s, sites))

    def throughput_of(self, power_fraction: np.ndarray) -> np.ndarray:
        """Throughput fraction of each site at this power, [N], relative to full power; 0 without power."""
        place, what = config_key("throughput", self.throughput), "the throughput fractions"
        fraction = numbers(self.throughput.fraction(power_fraction), (len(self),), 0.0, 1.0, place, what)
        return np.where(power_fraction > 0, fraction, 0.0)

    def throughput_fraction(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site at that time, [N]."""
        return self.throughput_of(self.power_fraction(clock_s))

    def bill(self, start_s: float, cohort: np.ndarray, timing: RoundTiming) -> dict[str, np.ndarray]:
        """Energy, carbon and money of a round from `start_s` at the sites of the cohort [k]: the integral of the power
        that they draw, which changes at the same times as for the clock. {column of the results: [k]}."""
        frozen = self.timing.power == "frozen"
        return self.meter.bill(
            lambda t: self.throughput.checked_draw_w(self.power_fraction(start_s if frozen else t)[cohort]),
            never if frozen else lambda t: self.next_change_s(t, cohort),
            start_s,
            cohort,
            timing,
        )

    def round_timing(self, round: int, start_s: float, cohort: np.ndarray, work_s: np.ndarray) -> RoundTiming:
        """Simulated timing of round number `round` with `cohort` [k]; `work_s` is c_i of all sites [N].

        Sites that are out at the start are not asked, those that are not back by the deadline are late. Where a site
        that was asked is missing then, or no site could be asked, the round lasts until the deadline.
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
            lambda t: self.next_change_s(t, sites),
            start_s,
            work_s[sites],
            float(work_s.sum()),
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
                "lower timing.seconds_per_sample, a round's work or network.update_bytes, or set faults.deadline_s",
            )
        return RoundTiming(compute_s, comm_s, makespan_s, int(asked[finish_s.argmax()]), status)
