"""The true world: sites, links and power; the times of a round in it, and its bill. Policies never see it; they see the
profiler's view. Shapes: N sites, k sites of a cohort, n of some sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from hpctrip.base.errors import InputError
from hpctrip.base.series import mean, spans
from hpctrip.base.units import GB, J_PER_KWH
from hpctrip.base.validate import numbers
from hpctrip.config.component import config_key
from hpctrip.sim.availability import Availability
from hpctrip.sim.calendar import Calendar, shared
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.flights import Flights, RoundTimes
from hpctrip.sim.grid.signals import GridSignal, SignalModel
from hpctrip.sim.hardware import Hardware, Throughput
from hpctrip.sim.network import Links, Network, Transfers
from hpctrip.sim.power import PowerModel, PowerSupply
from hpctrip.sim.quantities import BY_SIGNAL, SPENT
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SitePlacement, Sites, numbered
from hpctrip.sim.times import utc
from hpctrip.sim.timing import MOST_STEPS, Timing, checked_length_s


class WorldInput(Protocol):
    """The input tables that describe a world, and the seed."""

    seed: int
    sites: SitePlacement
    network: Network
    power: PowerModel
    throughput: Throughput
    timing: Timing
    faults: Faults
    accounts: Accounts
    carbon: SignalModel
    price: SignalModel


@dataclass(frozen=True)
class World:
    """N sites around one aggregator."""

    seed: int
    distance_m: np.ndarray
    """[N]."""
    site_columns: Mapping[str, np.ndarray]
    """Columns of the sites' file other than their distance, [N] each."""
    network: Network
    links: Links
    update_bytes: float
    """M as it travels up: compressed."""
    model_bytes: float
    """Bytes that travel down in a round trip: M uncompressed."""
    power: PowerModel
    supply: PowerSupply
    availability: tuple[Availability, ...]
    """Shares of the supply that sites may use: they multiply."""
    hardware: Hardware
    timing: Timing
    faults: Faults
    accounts: Accounts
    signals: Mapping[str, GridSignal]
    """{input table: signal} of the quantities that depend on the grid (`Quantity.signal`)."""
    out_of_budget: np.ndarray = np.False_
    """Sites that have spent one of their budgets (accounts.site_max_*), [N] bool: out for good."""

    @classmethod
    def build(cls, tables: WorldInput, payload_bytes: float, sent_fraction: float = 1.0) -> World:
        """The world of one seed. `payload_bytes` is M where the network says "auto"; `sent_fraction` is the share of M
        that compression leaves for the way up. InputError where a component returns an invalid value."""
        sites, network, seed = tables.sites, tables.network, tables.seed
        grid = signal_models(tables)
        sites.check_columns({getattr(part, "site_column", None) for part in (*grid.values(), network)})
        distance_m = sites.checked_distances_m(seed)
        columns = sites.checked_columns(num_sites := len(distance_m), getattr(network, "site_column", None))
        seconds, place = tables.timing.seconds_per_sample, config_key("sites", sites)
        hardware = Hardware.of(tables.throughput, columns, num_sites, place, seconds)
        model_bytes = float(payload_bytes if network.update_bytes == "auto" else network.update_bytes)
        supply = tables.power.checked_supply(columns, hardware.site_w, seed)
        signals = {name: model.checked_signal(name, sites, num_sites, seed) for name, model in grid.items()}
        supply, signals = _on_one_calendar(supply, signals)
        signals = {table: _with_own(table, signal, columns, place) for table, signal in signals.items()}
        world = cls(
            seed=seed,
            distance_m=distance_m,
            site_columns=columns,
            network=network,
            links=network.checked_links(distance_m, columns),
            update_bytes=model_bytes * sent_fraction,
            model_bytes=model_bytes,
            power=tables.power,
            supply=supply,
            availability=tables.faults.availability(num_sites, seed),
            hardware=hardware,
            timing=tables.timing,
            faults=tables.faults,
            accounts=tables.accounts,
            signals=signals,
        )
        # so that an invalid model is reported before ranks wait for a round
        world.transfers(0.0)
        world.throughput_fraction(0.0)
        hardware.draw_w(world.power_fraction(0.0))
        return world

    def __len__(self) -> int:
        return len(self.distance_m)

    def after(self, history: History) -> Self:
        """The world of the round after `history`, in which sites that have spent a budget are out."""
        spent = self.accounts.spent(history, len(self))
        return replace(self, out_of_budget=spent) if spent.any() else self

    @property
    def deadline_s(self) -> float:
        """Seconds from a flight's start until the aggregator gives it up; inf: it waits for all."""
        return np.inf if self.faults.deadline_s is None else self.faults.deadline_s

    @property
    def comm_energy_j(self) -> float:
        """Joules of the network for one site and round; in an all-reduce of k sites 1 - 1/k of them, as each sends that
        share of its update twice."""
        down_bytes = self.model_bytes if self.network.round_trip else 0.0
        down_bytes = self.update_bytes if self.links.all_reduces else down_bytes
        return self.accounts.network_j_per_gb * (self.update_bytes + down_bytes) / GB

    @property
    def is_released(self) -> bool:
        """Whether a site that has sent its update stops drawing power; in an all-reduce all are done together."""
        return self.accounts.waiting == "released" and not self.links.all_reduces

    @property
    def synthetic_signals(self) -> list[str]:
        """The input tables whose signals are synthetic."""
        return [table for table, signal in self.signals.items() if signal.synthetic]

    @property
    def start(self) -> list[str]:
        """The moment at which simulated time begins in each dated series, and the end of its data, as texts."""
        return [
            f"{table} {utc(dates.begin_us)} UTC, data until {utc(dates.end_us)}"
            for table, dates in _calendars(self.supply, self.signals).items()
        ]

    def site_name(self, site: int) -> str:
        """A site in messages: its number and, where it has one, its name."""
        return numbered(site, self.site_columns.get("name", ()))

    def available(self, clock_s: float) -> np.ndarray:
        """The share of its supply that each site may use at that time, [N]; 0: it is out."""
        share = np.where(self.out_of_budget, 0.0, np.ones(len(self)))
        for part in self.availability:
            share = share * part.at(clock_s)
        return share

    def supplied(self, clock_s: float) -> np.ndarray:
        """The power fraction that the supply gives each site at that time, [N], whether or not the site is out."""
        place, what = config_key("power", self.power), f"the power fractions at {clock_s:g} s"
        return numbers(self.supply.at(clock_s), (len(self),), 0.0, 1.0, place, what)

    def power_fraction(self, clock_s: float) -> np.ndarray:
        """P_i(t), [N]: what is supplied and available; 0 where a site is out."""
        return self.supplied(clock_s) * self.available(clock_s)

    def mean_power_fraction(self, start_s: float, end_s: float) -> np.ndarray:
        """The mean of P_i(t) between two times, [N], as far as the supply has data; that at `start_s` where they are
        one. Outages count as they are in the middle of each step of the supply."""
        return mean(self.power_fraction, self.supply.next_change_s, start_s, min(end_s, self.supply.ends_s))

    def throughput_fraction(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site at that time, [N]."""
        return self.hardware.throughput(self.power_fraction(clock_s))

    def transfers(self, start_s: np.ndarray | float, sites: Sites = slice(None)) -> Transfers:
        """How long the transfers of `sites` [n] take that start at `start_s`, one time or [n]. InputError where the
        network gives no durations."""
        transfers = self.links.transfer_s(sites, start_s, self.update_bytes, self.model_bytes)
        shape, place = self.distance_m[sites].shape, config_key("network", self.network)
        largest, what = float(np.finfo(float).max), "the communication delays in s"
        return transfers._replace(alone_s=numbers(transfers.alone_s, shape, 0.0, largest, place, what))

    def computing_s(self, sites: np.ndarray, start_s: float, work_s: np.ndarray) -> np.ndarray:
        """Seconds that `sites` [k] compute which start together at that time; inf where that takes longer than the
        deadline. `work_s` is c_i of all sites [N]."""
        power = CohortPower(self, sites, start_s + self.deadline_s)
        return self.timing.elapsed_compute_s(
            power.throughput_at,
            power.next_change_s,
            start_s,
            work_s[sites],
            float(work_s.sum()),
            self.deadline_s,
        )

    def times(
        self, round: int, start_s: float, cohort: np.ndarray, work_s: np.ndarray, local_work: ArrayLike = 1
    ) -> RoundTimes:
        """Simulated times of round number `round`, in which all of `cohort` [k] start together and none is waited for
        afterwards. `work_s` is c_i of all sites [N], `local_work` times that of [train].

        Sites that are out at the start are not asked, those that are not back by the deadline are late. Where a site
        that was asked is missing then, or no site could be asked, the round lasts until the deadline.
        """
        k, deadline_s = len(cohort), self.deadline_s
        asked = np.flatnonzero(self.available(start_s)[cohort] > 0)
        compute_s, comm_s = np.full(k, np.inf), self.transfers(start_s, cohort).alone_s.copy()
        status, makespan_s = np.full(k, int(Status.OUT)), deadline_s
        if len(asked):
            sites = cohort[asked]
            lost, extra_s = self.faults.wan(round, len(self), self.seed)
            compute_s[asked] = self.computing_s(sites, start_s, work_s)
            computed_s = np.where(np.isfinite(compute_s[asked]), compute_s[asked], 0.0)
            comm_s[asked] = self.transfers(start_s + computed_s, sites).together_s + extra_s[sites]
            in_time = np.where(lost[sites], Status.LOST, Status.ARRIVED)
            status[asked] = np.where((compute_s + comm_s)[asked] > deadline_s, Status.LATE, in_time)
            makespan_s = checked_length_s(
                round, self.timing.makespan_s(compute_s, comm_s, status, deadline_s)
            )
        version, work = np.full(k, round - 1), np.full(k, local_work)
        flights = Flights(cohort, version, np.full(k, start_s), compute_s, comm_s, work, status)
        return RoundTimes(round, start_s, makespan_s, flights)

    def bill(self, times: RoundTimes) -> dict[str, np.ndarray]:
        """Energy, carbon and cost of the flights of a round [f] within it: {column of `SPENT`: [f]}; NaN where the grid
        signal is not set. The power that they draw is integrated over the same changes as the clock's.

        A site computes until it is done, its deadline passes or the round ends; then its update travels. All of the
        network's energy counts when the transfer begins, with the site's intensity and price at that time. A site that
        waits does so until the end of the round in which its update arrives, or until it starts again.
        """
        start_s, end_s, flights = times.start_s, times.end_s, times.flights
        asked = flights.status != Status.OUT
        latest_s = np.minimum(end_s, flights.start_s + self.deadline_s)
        computed_s = np.where(asked, np.minimum(flights.computed_s, latest_s), flights.start_s)
        sends = asked & (flights.computed_s <= latest_s)
        sent_s = np.where(sends, np.fmin(computed_s + flights.comm_s, latest_s), latest_s)
        free_s = sent_s if self.is_released else _free_s(flights, end_s)
        until_s = np.where(asked, free_s, flights.start_s)
        begins_to_send = sends & ((times.age == 0) | (flights.computed_s > start_s))
        sent_j = self.comm_energy_j * (1 - 1 / max(1, asked.sum()) if self.links.all_reduces else 1)
        sites, of_site = flights.site, slice(None)
        if times.age.any():  # a site may be in the round twice
            sites, of_site = np.unique(sites, return_inverse=True)
        supplied = CohortPower(self, sites, max(end_s, start_s + self.deadline_s))
        changes = {table: signal.next_change_s for table, signal in self.signals.items()}
        if frozen := self.timing.power == "frozen":
            power = np.empty(len(flights))
            for each_s in np.unique(flights.start_s).tolist():
                together = flights.start_s == each_s
                power[together] = supplied.at(each_s)[of_site][together]
        else:
            changes["power"] = supplied.next_change_s
        sums = {name: np.zeros(len(flights)) for name in SPENT}

        def change_s(clock_s: float) -> float:
            return min(next_change_s(clock_s) for next_change_s in changes.values())

        for begin_s, span_end_s, at_s in islice(spans(start_s, change_s), MOST_STEPS):
            last = span_end_s >= end_s
            until = end_s if last else span_end_s
            if not frozen:
                power = supplied.at(at_s)[of_site]
            busy_w, waiting_w = self.hardware.draw_w(power, flights.site)
            begins = begins_to_send & (computed_s >= begin_s) & (last | (computed_s < until))
            joules = {
                "compute_energy_j": busy_w * _overlap_s(begin_s, until, flights.start_s, computed_s),
                "wait_energy_j": waiting_w * _overlap_s(begin_s, until, computed_s, until_s),
                "comm_energy_j": np.where(begins, sent_j, 0.0),
            }
            kwh = sum(joules.values()) / J_PER_KWH
            by_grid = {
                BY_SIGNAL[name].column: kwh * s.at(at_s, flights.site) for name, s in self.signals.items()
            }
            for name, amount in (joules | by_grid).items():
                sums[name] += amount
            if last:
                return sums
        raise self._too_many_changes(times, changes)

    def _too_many_changes(
        self, times: RoundTimes, changes: Mapping[str, Callable[[float], float]]
    ) -> InputError:
        """The cause of a round of too many changes: a transfer that takes most of it, else the table that changes most;
        `changes` is {table: next_change_s}."""
        start_s, makespan_s, flights = times.start_s, times.makespan_s, times.flights
        when = f"in the round that starts at {start_s:g} s and lasts {makespan_s:g} s"
        sends = (flights.status != Status.OUT) & (flights.computed_s <= times.end_s)
        comm_s = np.where(sends, np.nan_to_num(flights.comm_s), 0.0)
        slowest = int(comm_s.argmax())
        if 2 * comm_s[slowest] > makespan_s:
            site = flights.site[slowest]
            rate = f"{self.links.bandwidth_bps[site]:g} bit/s"
            return InputError(
                "network",
                f"a transfer takes {comm_s[slowest]:g} s at {rate} at {self.site_name(site)} {when}",
                "check network.update_bytes, and the unit of the sites' bandwidth and round-trip time",
            )
        table = max(changes, key=lambda name: _num_changes(changes[name], start_s, start_s + makespan_s))
        return InputError(
            table,
            f"changes more than {MOST_STEPS:,} times {when}",
            f"use data of longer steps{' or rarer outages (faults.mtbf_s)' * (table == 'power')}, or shorter rounds",
        )


def signal_models(tables: WorldInput) -> dict[str, SignalModel]:
    """{input table: its signal} of the quantities that depend on the grid."""
    return {table: getattr(tables, table) for table in BY_SIGNAL}


def _with_own(table: str, signal: GridSignal, columns: Mapping[str, np.ndarray], place: str) -> GridSignal:
    """The signal of an input table with the values that the sites' columns [N] have. InputError at `place`, their
    table, where neither has a value."""
    values = columns.get(BY_SIGNAL[table].per_kwh)
    if values is None:
        return signal
    if not signal.is_known and (lacking := np.flatnonzero(np.isnan(values))).size:
        problem = f"{numbered(lacking[0], columns.get('name', ()))} has no {table}, and [{table}] is not set"
        raise InputError(place, problem, f"fill it in, or set {table}.kind = 'constant'")
    return signal.with_own(values)


def _calendars(supply: PowerSupply, signals: dict[str, GridSignal]) -> dict[str, Calendar]:
    """{input table: calendar} of the series that have dates."""
    series = {"power": supply, **signals}
    return {table: each.calendar for table, each in series.items() if each.calendar is not None}


def _on_one_calendar(
    supply: PowerSupply, signals: dict[str, GridSignal]
) -> tuple[PowerSupply, dict[str, GridSignal]]:
    """The same series, of which those with dates begin at one moment and end together. InputError as `shared`."""
    dates = shared(_calendars(supply, signals))
    on_time = {
        table: signal.on(dates[table]) if table in dates else signal for table, signal in signals.items()
    }
    return supply.on(dates["power"]) if "power" in dates else supply, on_time


class CohortPower:
    """P_i(t) of some sites [k] of a world, distinct and within their budgets, up to a time, with the contract of
    base/series.py. It caches the supply of the present step, so that a change of availability costs k sites instead of
    all N."""

    def __init__(self, world: World, sites: np.ndarray, until_s: float):
        self._world, self._sites = world, sites
        self._available = [part.among(sites, until_s) for part in world.availability]
        self._supplied, self._from_s, self._until_s = np.zeros(0), np.inf, np.inf

    def at(self, clock_s: float) -> np.ndarray:
        """P_i(t), [k]; 0 where a site is out."""
        if not self._from_s <= clock_s < self._until_s:
            self._supplied = self._world.supplied(clock_s)[self._sites]
            self._from_s, self._until_s = clock_s, self._world.supply.next_change_s(clock_s)
        power = self._supplied
        for part in self._available:
            power = power * part.at(clock_s)
        return power

    def throughput_at(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site, [k]."""
        return self._world.hardware.throughput(self.at(clock_s), self._sites)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the power of one of the sites may change; inf: never."""
        return min(part.next_change_s(clock_s) for part in (self._world.supply, *self._available))


def _free_s(flights: Flights, end_s: float) -> np.ndarray:
    """When the sites of flights have done with them, [f]: at the end of a round, or when they start again in it."""
    free_s = np.full(len(flights), end_s)
    order = np.lexsort((flights.start_s, flights.site))
    again = np.flatnonzero(np.diff(flights.site[order]) == 0)
    free_s[order[again]] = flights.start_s[order[again + 1]]
    return free_s


def _num_changes(next_change_s: Callable[[float], float], start_s: float, end_s: float) -> int:
    """How often a value changes between two times, at most MOST_STEPS."""
    ends_s = (change_s for _, change_s, _ in islice(spans(start_s, next_change_s), MOST_STEPS))
    return sum(1 for _ in takewhile(lambda change_s: change_s < end_s, ends_s))


def _overlap_s(begin_s: float, end_s: float, from_s: np.ndarray | float, until_s: np.ndarray) -> np.ndarray:
    """Length of the intersection of [begin_s, end_s] and [from_s, until_s], [k] s."""
    return np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0.0)
