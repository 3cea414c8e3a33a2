"""The true world: sites, links and power; the times of a round in it. Policies never see it; they see the profiler's
view. Shapes: N sites, k sites of a cohort, n of some sites."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from hpctrip.base.errors import InputError
from hpctrip.base.series import mean, spans
from hpctrip.base.units import GB
from hpctrip.base.validate import numbers
from hpctrip.config.component import config_key
from hpctrip.sim.availability import Availability, AvailabilityModel, Surroundings
from hpctrip.sim.calendar import Calendar, shared
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.flights import Flights, RoundTimes
from hpctrip.sim.grid.signals import GridSignal, SignalModel
from hpctrip.sim.hardware import Hardware, Throughput
from hpctrip.sim.network import Links, Network, Transfers
from hpctrip.sim.power import PowerModel, PowerSupply
from hpctrip.sim.quantities import BY_SIGNAL
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SitePlacement, Sites, numbered
from hpctrip.sim.times import utc
from hpctrip.sim.timing import LONGEST_ROUND_S, MOST_STEPS, Timing, checked_length_s


class WorldInput(Protocol):
    """The input tables that describe a world, and the seed."""

    seed: int
    sites: SitePlacement
    network: Network
    power: PowerModel
    throughput: Throughput
    timing: Timing
    faults: Faults
    availability: Mapping[str, AvailabilityModel]
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
    overlap: float = 0.0
    """Share of its computing during which a site does not wait for the transfer of the round before."""
    _supplied: deque = field(default_factory=lambda: deque(maxlen=16), repr=False, compare=False)
    """The last answers of `supplied`, each true from a time until the supply changes: only saved work."""

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
        dated = _on_one_calendar(
            {"power": supply, **signals, "network": network.checked_links(distance_m, columns)}
        )
        supply, links, signals = dated["power"], dated["network"], {name: dated[name] for name in signals}
        signals = {table: _with_own(table, signal, columns, place) for table, signal in signals.items()}
        begin_us = sorted({dates.begin_us for dates in _calendars(dated).values()})
        around = Surroundings(num_sites, seed, columns, supply, signals, begin_us)
        planned = [
            model.checked_availability(f"availability.{name}", around)
            for name, model in sorted(tables.availability.items())
        ]
        world = cls(
            seed=seed,
            distance_m=distance_m,
            site_columns=columns,
            network=network,
            links=links,
            update_bytes=model_bytes * sent_fraction,
            model_bytes=model_bytes,
            power=tables.power,
            supply=supply,
            availability=(*tables.faults.availability(num_sites, seed), *planned),
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
        """The world of the round after `history`, in which sites that have spent a budget are out, and others may have
        been released."""
        spent = self.accounts.spent(history, len(self))
        world = replace(self, out_of_budget=spent) if spent.any() else self
        parts = tuple(part.after(history) for part in self.availability)
        changed = any(new is not old for new, old in zip(parts, self.availability, strict=True))
        return replace(world, availability=parts) if changed else world

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
    def calendars(self) -> dict[str, Calendar]:
        """{input table: calendar} of its dated series."""
        return _calendars({"power": self.supply, **self.signals, "network": self.links})

    @property
    def start(self) -> list[str]:
        """The moment at which simulated time begins in each dated series, and the end of its data, as texts."""
        return [
            f"{table} {utc(dates.begin_us)} UTC, data until {utc(dates.end_us)}"
            for table, dates in self.calendars.items()
        ]

    def site_name(self, site: int) -> str:
        """A site in messages: its number and, where it has one, its name."""
        return numbered(site, self.site_columns.get("name", ()))

    def available(self, clock_s: float, sites: np.ndarray | None = None) -> np.ndarray:
        """The share of its supply that each site may use at that time, [N], or of `sites` [n]; 0: it is out."""
        out = np.broadcast_to(self.out_of_budget, len(self))
        share = np.where(out if sites is None else out[sites], 0.0, 1.0)
        for part in self.availability:
            share = share * (part if sites is None else part.among(sites, clock_s)).at(clock_s)
        return share

    def supplied(self, clock_s: float) -> np.ndarray:
        """The power fraction that the supply gives each site at that time, [N], whether or not the site is out."""
        for supply, from_s, until_s, power in self._supplied:
            if supply is self.supply and from_s <= clock_s < until_s:
                return power
        place, what = config_key("power", self.power), f"the power fractions at {clock_s:g} s"
        power = numbers(self.supply.at(clock_s), (len(self),), 0.0, 1.0, place, what)
        until_s = min(self.supply.next_change_s(clock_s), self.supply.ends_s)
        self._supplied.append((self.supply, clock_s, until_s, power))
        return power

    def power_fraction(self, clock_s: float) -> np.ndarray:
        """P_i(t), [N]: what is supplied and available; 0 where a site is out."""
        return self.supplied(clock_s) * self.available(clock_s)

    def mean_power_fraction(self, start_s: float, end_s: float) -> np.ndarray:
        """The mean of P_i(t) between two times, [N], as far as the supply has data; that at `start_s` where they are
        one. Outages count as they are in the middle of each step of the supply and of [availability]."""
        parts = [self.supply, *(part for part in self.availability if part.is_awaited)]

        def change_s(clock_s: float) -> float:
            return min(part.next_change_s(clock_s) for part in parts)

        return mean(self.power_fraction, change_s, start_s, min(end_s, self.supply.ends_s))

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

    def available_s(self, clock_s: float) -> np.ndarray:
        """Seconds until each site's availability falls as far as that has been announced, [N]; inf: nothing is."""
        falls_s = [part.falls_s(clock_s) for part in self.availability]
        return np.min([np.full(len(self), np.inf), *falls_s], axis=0) - clock_s

    def pauses_s(self, clock_s: float) -> np.ndarray:
        """Seconds until the work of each site stands still and goes on again, as far as that has been announced, in
        the order in which it stands still, [pauses, 2, N]."""
        pauses = [pause for part in self.availability for pause in part.pauses_s(clock_s)]
        listed = np.array(pauses).reshape(-1, 2, len(self)) - clock_s
        return np.take_along_axis(listed, listed[:, :1].argsort(axis=0), axis=0)

    def announced(self, clock_s: float, span_s: float) -> np.ndarray:
        """The mean share that announced events leave of the sites' power over so many seconds, relative to what they
        leave now, [N]; 1 where they leave nothing now, so that nothing is known."""
        ratio = np.ones(len(self))
        for part in self.availability:
            known = part.known(clock_s)
            now, later = known.at(clock_s), mean(known.at, known.next_change_s, clock_s, clock_s + span_s)
            ratio = ratio * np.divide(later, now, out=np.ones(len(self)), where=now > 0)
        return ratio

    @property
    def has_windows(self) -> bool:
        """Whether sites are provisioned, and then draw idle power while they have no flight."""
        return any(part.provisions for part in self.availability)

    @property
    def has_queues(self) -> bool:
        """Whether sites that are asked may wait until they begin."""
        return any(part.has_queues for part in self.availability)

    def queue_s(self, round: int, start_s: float, sites: np.ndarray) -> np.ndarray:
        """Seconds that `sites` [k] wait in queues which are asked in a round at that time."""
        return sum((part.wait_s(round, start_s, sites) for part in self.availability), np.zeros(len(sites)))

    def computing_s(
        self, sites: np.ndarray, start_s: float, work_s: np.ndarray, queue_s: np.ndarray
    ) -> np.ndarray:
        """Seconds that `sites` [k] compute which start together at that time, and then wait in queues for `queue_s`
        [k]; inf where they are not done by the deadline. `work_s` is c_i of all sites [N]."""
        power = CohortPower(self, sites, start_s + self.deadline_s)
        return self.timing.elapsed_compute_s(
            power.throughput_at,
            power.next_change_s,
            start_s,
            work_s[sites],
            float(work_s.sum()),
            self.deadline_s,
            queue_s,
        )

    def nobody_s(self, start_s: float, cohort: np.ndarray) -> float:
        """Length of a round in which none of `cohort` [k] can be asked: until one of them can, or else any site, but no
        longer than the deadline. InputError where none ever can, and there is no deadline."""
        if not any(part.is_awaited for part in self.availability):
            return self.deadline_s
        first_s = np.inf
        for _, change_s, _ in islice(spans(start_s, self._next_availability_s), MOST_STEPS):
            if change_s - start_s >= min(self.deadline_s, LONGEST_ROUND_S):
                break
            share = self.available(change_s)
            if (share[cohort] > 0).any():
                return change_s - start_s
            if share.any():
                first_s = min(first_s, change_s - start_s)
        if np.isinf(length_s := min(first_s, self.deadline_s)):
            problem = f"no site may train from {start_s:g} s on"
            raise InputError(
                "availability", problem, "end the run before (stop.max_clock_s), or set faults.deadline_s"
            )
        return length_s

    def _next_availability_s(self, clock_s: float) -> float:
        return min(part.next_change_s(clock_s) for part in self.availability)

    def times(
        self, round: int, start_s: float, cohort: np.ndarray, work_s: np.ndarray, local_work: ArrayLike = 1
    ) -> RoundTimes:
        """Simulated times of round number `round`, in which all of `cohort` [k] start together and none is waited for
        afterwards. `work_s` is c_i of all sites [N], `local_work` times that of [train].

        Sites that are out at the start are not asked, those that are not back by the deadline are late. Where a site
        that was asked is missing then, or no site could be asked, the round lasts until the deadline.
        """
        k, deadline_s = len(cohort), self.deadline_s
        is_asked = self.available(start_s)[cohort] > 0
        asked = slice(None) if is_asked.all() else np.flatnonzero(is_asked)
        compute_s, comm_s = np.full(k, np.inf), np.zeros(k)
        if not is_asked.all():
            comm_s = self.transfers(start_s, cohort).alone_s.copy()
        queue_s = self.queue_s(round, start_s, cohort)
        status = np.full(k, int(Status.OUT))
        if is_asked.any():
            sites = cohort[asked]
            lost, extra_s = self.faults.wan(round, len(self), self.seed)
            compute_s[asked] = self.computing_s(sites, start_s, work_s, queue_s[asked])
            after_s = queue_s + compute_s
            computed_s = np.where(np.isfinite(after_s[asked]), after_s[asked], 0.0)
            transfer_s = self.transfers(start_s + computed_s, sites).together_s + extra_s[sites]
            comm_s[asked] = np.maximum(transfer_s - self.overlap * computed_s, 0.0)
            in_time = np.where(lost[sites], Status.LOST, Status.ARRIVED)
            status[asked] = np.where((after_s + comm_s)[asked] > deadline_s, Status.LATE, in_time)
            makespan_s = self.timing.makespan_s(after_s, comm_s, status, deadline_s)
        else:
            makespan_s = self.nobody_s(start_s, cohort)
        version, work = np.full(k, round - 1), np.full(k, local_work)
        times = np.full(k, start_s), compute_s, comm_s
        flights = Flights(cohort, version, *times, work, status, queue_s, np.full(k, np.nan))
        return RoundTimes(round, start_s, checked_length_s(round, makespan_s), flights)


def signal_models(tables: WorldInput) -> dict[str, SignalModel]:
    """{input table: its signal} of the quantities that depend on the grid."""
    return {table: getattr(tables, table) for table in BY_SIGNAL}


def _with_own(table: str, signal: GridSignal, columns: Mapping[str, np.ndarray], place: str) -> GridSignal:
    """The signal of an input table with the values that the sites' columns [N] have. InputError at `place`, their
    table, where neither has a value, and where the columns leave nothing to the table."""
    values = columns.get(BY_SIGNAL[table].per_kwh)
    if values is None:
        return signal
    if not signal.is_known and (lacking := np.flatnonzero(np.isnan(values))).size:
        problem = f"{numbered(lacking[0], columns.get('name', ()))} has no {table}, and [{table}] is not set"
        raise InputError(place, problem, f"fill it in, or set {table}.kind = 'constant'")
    if signal.is_known and not np.isnan(values).any():
        problem = f"has the {table} of every site in a column, so that [{table}] would not be used"
        raise InputError(place, problem, f"leave out the column, or the table [{table}]")
    return signal.with_own(values)


def _calendars(series: Mapping[str, Any]) -> dict[str, Calendar]:
    """{input table: calendar} of the supply, signals and links that have dates."""
    return {table: each.calendar for table, each in series.items() if each.calendar is not None}


def _on_one_calendar(series: Mapping[str, Any]) -> dict[str, Any]:
    """The same supply, signals and links, of which those with dates begin at one moment and end together. InputError as
    `shared`."""
    dates = shared(_calendars(series))
    return {table: each.on(dates[table]) if table in dates else each for table, each in series.items()}


class CohortPower:
    """P_i(t) of some sites [k] of a world, distinct and within their budgets, up to a time, with the contract of
    base/series.py."""

    def __init__(self, world: World, sites: np.ndarray, until_s: float):
        self._world, self._sites = world, sites
        self._available = [part.among(sites, until_s) for part in world.availability]
        self._windows = [part for part in self._available if part.provisions]

    def at(self, clock_s: float, provisioned: bool = False) -> np.ndarray:
        """P_i(t), [k]; 0 where a site is out. `provisioned`: as if all were provisioned."""
        power = self._world.supplied(clock_s)[self._sites]
        for part in self._available:
            if not (provisioned and part.provisions):
                power = power * part.at(clock_s)
        return power

    def is_provisioned(self, clock_s: float) -> np.ndarray:
        """Whether each site is provisioned in all windows, [k] bool."""
        return np.all([part.since_s(clock_s) <= clock_s for part in self._windows], axis=0)

    def throughput_at(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site, [k]."""
        return self._world.hardware.throughput(self.at(clock_s), self._sites)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the power of one of the sites may change; inf: never."""
        return min(part.next_change_s(clock_s) for part in (self._world.supply, *self._available))
