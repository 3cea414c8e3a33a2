"""The true world: sites, WAN and power; the times of a round in it, and its bill. Policies never see it; they see the
profiler's view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, Self

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.series import mean, spans
from hpctrip.base.units import GB, J_PER_KWH
from hpctrip.base.validate import numbers
from hpctrip.config.component import config_key
from hpctrip.sim.calendar import Calendar, shared
from hpctrip.sim.energy import SPENT, Accounts
from hpctrip.sim.faults import Faults, ListedOutages, RandomOutages
from hpctrip.sim.grid.signals import GridSignal, SignalModel
from hpctrip.sim.hardware import Throughput
from hpctrip.sim.network import Network
from hpctrip.sim.power import PowerModel, PowerSupply
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.sites import SitePlacement
from hpctrip.sim.times import utc
from hpctrip.sim.timing import LONGEST_ROUND_S, MOST_STEPS, Timing

Sites = np.ndarray | slice


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
    faults: Faults
    outages: ListedOutages | RandomOutages
    accounts: Accounts
    signals: dict[str, GridSignal]
    """{input table: signal}: grams per kilowatt-hour of "carbon", money per kilowatt-hour of "price"."""
    comm_energy_j: float
    """Joules of the network for one site and round."""
    seed: int
    site_columns: Mapping[str, np.ndarray]
    """Columns of the sites' file other than their distance, [N] each."""
    size: np.ndarray
    """GPUs of each site, relative to throughput.num_gpus."""
    spent: np.ndarray = np.False_
    """Sites that have spent one of their budgets (accounts.site_max_*), [N] bool: out for good."""

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
        faults: Faults,
        sent_fraction: float,
        accounts: Accounts,
        carbon: SignalModel,
        price: SignalModel,
    ) -> World:
        """The world of one seed. `payload_bytes` is M where the network says "auto"; `sent_fraction` is the share of M
        that compression leaves for the way up. InputError where a component returns an invalid value."""
        grid = {"carbon": carbon, "price": price}
        sites.check_columns({getattr(model, "site_column", None) for model in grid.values()})
        distance_m = sites.checked_distances_m(seed)
        columns = sites.checked_columns(num_sites := len(distance_m))
        size = _size(columns, throughput, num_sites, config_key("sites", sites))
        model_bytes = float(payload_bytes if network.update_bytes == "auto" else network.update_bytes)
        update_bytes = model_bytes * sent_fraction
        sent_bytes = update_bytes + (model_bytes if network.round_trip else 0.0)
        supply = power.checked_supply(columns, throughput.site_w() * size, seed)
        signals = {name: model.checked_signal(name, sites, num_sites, seed) for name, model in grid.items()}
        supply, signals = _on_one_calendar(supply, signals)
        world = cls(
            distance_m,
            *_wan(network, distance_m, columns, update_bytes, model_bytes),
            network.link_s(update_bytes, model_bytes),
            update_bytes,
            model_bytes,
            power,
            supply,
            throughput,
            timing,
            faults,
            faults.outages_of(num_sites, seed),
            accounts,
            signals,
            accounts.network_j_per_gb * sent_bytes / GB,
            seed,
            columns,
            size,
        )
        # so that an invalid model is reported before ranks wait for a round
        world.throughput_fraction(0.0)
        world.draw_w(world.power_fraction(0.0))
        return world

    def __len__(self) -> int:
        return len(self.distance_m)

    def after(self, history: History) -> Self:
        """The world of the round after `history`, in which sites that have spent a budget are out."""
        spent = self.accounts.spent(history, len(self))
        return replace(self, spent=spent) if spent.any() else self

    @property
    def deadline_s(self) -> float:
        """Seconds from a round's start until the aggregator proceeds; inf: it waits for all."""
        return np.inf if self.faults.deadline_s is None else self.faults.deadline_s

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

    def down(self, clock_s: float) -> np.ndarray:
        """Which sites are out at that time, [N] bool."""
        return self.outages.until(clock_s).at(clock_s) | self.spent

    def supplied(self, clock_s: float) -> np.ndarray:
        """The power fraction that the supply gives each site at that time, [N], whether or not the site is out."""
        place, what = config_key("power", self.power), f"the power fractions at {clock_s:g} s"
        return numbers(self.supply.at(clock_s), (len(self),), 0.0, 1.0, place, what)

    def power_fraction(self, clock_s: float) -> np.ndarray:
        """P_i(t), [N]; 0 where a site is out."""
        return np.where(self.down(clock_s), 0.0, self.supplied(clock_s))

    def mean_power_fraction(self, start_s: float, end_s: float) -> np.ndarray:
        """The mean of P_i(t) between two times, [N], as far as the supply has data; that at `start_s` where they are
        one. Outages count as they are in the middle of each step of the supply."""
        return mean(self.power_fraction, self.supply.next_change_s, start_s, min(end_s, self.supply.ends_s))

    def throughput_of(self, power_fraction: np.ndarray, sites: Sites = slice(None)) -> np.ndarray:
        """Throughput fraction of `sites` with this power [n], relative to full power, [n]; 0 without power."""
        return self.throughput.checked_fraction(power_fraction, self.size[sites])

    def draw_w(self, power_fraction: np.ndarray, sites: Sites = slice(None)) -> tuple[np.ndarray, np.ndarray]:
        """(busy, waiting) watts of `sites` with this power [n], [n] each."""
        return self.throughput.checked_draw_w(power_fraction, self.size[sites])

    def work_s(self, num_visits: np.ndarray, seconds_per_sample: float) -> np.ndarray:
        """c_i: seconds that the sites need at full power to train on `num_visits` samples [N]; a sample takes
        `seconds_per_sample` at a site of throughput.num_gpus GPUs."""
        return seconds_per_sample * num_visits / self.size

    def throughput_fraction(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site at that time, [N]."""
        return self.throughput_of(self.power_fraction(clock_s))


def site_name(world: World, site: int) -> str:
    """The number of a site and, where it has one, its name, for messages."""
    name = world.site_columns.get("name", {site: ""})[site]
    return f"site {site} ({name})" if name else f"site {site}"


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
    """Power of some sites [k] of a world in a round from `start_s`, with the contract of base/series.py. A change of
    one site's power costs k sites: the supply is asked for all N once a step."""

    def __init__(self, world: World, sites: np.ndarray, start_s: float):
        self._world, self._sites = world, sites
        self._outages = world.outages.until(start_s + world.deadline_s).among(sites)
        self._spent = np.broadcast_to(world.spent, len(world))[sites]
        self._supplied, self._from_s, self._until_s = np.zeros(0), np.inf, np.inf

    def at(self, clock_s: float) -> np.ndarray:
        """P_i(t), [k]; 0 where a site is out."""
        if not self._from_s <= clock_s < self._until_s:
            self._supplied = self._world.supplied(clock_s)[self._sites]
            self._from_s, self._until_s = clock_s, self._world.supply.next_change_s(clock_s)
        return np.where(self._outages.at(clock_s) | self._spent, 0.0, self._supplied)

    def throughput_at(self, clock_s: float) -> np.ndarray:
        """Throughput fraction of each site, [k]."""
        return self._world.throughput_of(self.at(clock_s), self._sites)

    def next_change_s(self, clock_s: float) -> float:
        """The first time after `clock_s` at which the power of one of the sites may change; inf: never."""
        return min(self._world.supply.next_change_s(clock_s), self._outages.next_change_s(clock_s))


def _known(columns: Mapping[str, np.ndarray], name: str, otherwise: np.ndarray) -> np.ndarray:
    """The values of a column [N], and `otherwise` [N] where it is NaN or absent."""
    values = columns.get(name)
    return otherwise if values is None else np.where(np.isnan(values), otherwise, values)


def _size(columns: Mapping[str, np.ndarray], usual: Throughput, num_sites: int, place: str) -> np.ndarray:
    """GPUs of each site relative to the usual number, [N]."""
    num_gpus = _known(columns, "num_gpus", np.full(num_sites, float(usual.num_gpus)))
    if usual.whole_gpus and len(parts := num_gpus[num_gpus % 1 > 0]):
        problem = f"has a site of {parts[0]:g} GPUs, and throughput.kind = {usual.kind!r} counts whole ones"
        raise InputError(place, problem, "give whole numbers in the column gpus")
    return numbers(num_gpus / usual.num_gpus, (num_sites,), 1e-9, 1e9, place, "the relative numbers of GPUs")


def _wan(
    network: Network,
    distance_m: np.ndarray,
    columns: Mapping[str, np.ndarray],
    update_bytes: float,
    model_bytes: float,
) -> tuple[np.ndarray, np.ndarray]:
    """(B_i in bit/s, L_i in s) of sites with these columns, [N] each, by the network's laws where they are unknown."""
    shape, place = distance_m.shape, config_key("network", network)
    propagation_s = _known(columns, "rtt_s", 2 * network.propagation_s(distance_m)) / 2
    bandwidth_bps = _known(columns, "bandwidth_bps", network.bandwidth_bps(distance_m))
    bandwidth_bps = numbers(bandwidth_bps, shape, 0.0, np.inf, place, "the bandwidths")
    comm_s = network.comm_s(propagation_s, bandwidth_bps, update_bytes, model_bytes)
    largest = np.finfo(float).max
    return bandwidth_bps, numbers(comm_s, shape, 0.0, largest, place, "the communication delays in s")


def round_times(
    world: World, round: int, start_s: float, cohort: np.ndarray, work_s: np.ndarray
) -> dict[str, Any]:
    """Simulated times of round number `round` with `cohort` [k], as in `Draft`: `compute_s`, `comm_s` and `status`
    [k], and `makespan_s`. `work_s` is c_i of all sites [N].

    Sites that are out at the start are not asked, those that are not back by the deadline are late. Where a site
    that was asked is missing then, or no site could be asked, the round lasts until the deadline.
    """
    k, deadline_s = len(cohort), world.deadline_s
    asked = np.flatnonzero(~world.down(start_s)[cohort])
    compute_s, comm_s = np.full(k, np.inf), world.comm_s[cohort].copy()
    status = np.full(k, int(Status.OUT))
    times = {"compute_s": compute_s, "comm_s": comm_s, "status": status}
    if len(asked) == 0:
        return times | {"makespan_s": deadline_s}
    sites = cohort[asked]
    lost, extra_s = world.faults.wan(round, len(world), world.seed)
    comm_s[asked] = np.maximum(world.comm_s[sites], len(sites) * world.link_s) + extra_s[sites]
    power = CohortPower(world, sites, start_s)
    compute_s[asked] = world.timing.elapsed_compute_s(
        power.throughput_at,
        power.next_change_s,
        start_s,
        work_s[sites],
        float(work_s.sum()),
        deadline_s,
    )
    finish_s = compute_s[asked] + comm_s[asked]
    in_time = np.where(lost[sites], Status.LOST, Status.ARRIVED)
    status[asked] = np.where(finish_s > deadline_s, Status.LATE, in_time)
    makespan_s = world.timing.makespan_s(compute_s, comm_s, status, deadline_s)
    if makespan_s > LONGEST_ROUND_S:
        raise InputError(
            "timing",
            f"round {round} would last {makespan_s:g} s, more than ten simulated years",
            "lower timing.seconds_per_sample, a round's work or network.update_bytes, or set faults.deadline_s",
        )
    return times | {"makespan_s": makespan_s}


def bill(
    world: World,
    start_s: float,
    cohort: np.ndarray,
    compute_s: np.ndarray,
    comm_s: np.ndarray,
    status: np.ndarray,
    makespan_s: float,
) -> dict[str, np.ndarray]:
    """Energy, carbon and cost of a round from `start_s` with these times (see `Draft`) at the sites of the cohort [k]:
    {column of `SPENT`: [k]}; NaN where the grid signal is not set. The power that they draw is integrated over the same
    changes as the clock's.

    A site computes until it is done or the round ends; then its update travels. All of the network's energy counts
    when the transfer begins, with the site's intensity and price at that time.
    """
    end_s = start_s + makespan_s
    asked = status != Status.OUT
    computed_s = np.where(asked, np.minimum(start_s + compute_s, end_s), start_s)
    sends = asked & (compute_s <= makespan_s)
    sent_s = np.where(sends, np.minimum(computed_s + comm_s, end_s), end_s)
    until_s = np.where(asked, end_s if world.accounts.waiting == "idle" else sent_s, start_s)
    sums = {name: np.zeros(len(cohort)) for name in SPENT}
    frozen, supplied = world.timing.power == "frozen", CohortPower(world, cohort, start_s)
    changes = {table: signal.next_change_s for table, signal in world.signals.items()}
    if not frozen:
        changes["power"] = supplied.next_change_s

    def change_s(clock_s: float) -> float:
        return min(next_change_s(clock_s) for next_change_s in changes.values())

    for begin_s, span_end_s, at_s in islice(spans(start_s, change_s), MOST_STEPS):
        last = span_end_s >= end_s
        until = end_s if last else span_end_s
        power = supplied.at(start_s if frozen else at_s)
        busy_w, waiting_w = world.draw_w(power, cohort)
        begins = sends & (computed_s >= begin_s) & (last | (computed_s < until))
        joules = {
            "compute_energy_j": busy_w * _overlap_s(begin_s, until, start_s, computed_s),
            "wait_energy_j": waiting_w * _overlap_s(begin_s, until, computed_s, until_s),
            "comm_energy_j": np.where(begins, world.comm_energy_j, 0.0),
        }
        kwh = sum(joules.values()) / J_PER_KWH
        joules["carbon_g"] = kwh * world.signals["carbon"].at(at_s, cohort)
        joules["cost"] = kwh * world.signals["price"].at(at_s, cohort)
        for name, amount in joules.items():
            sums[name] += amount
        if last:
            return sums
    raise _too_many_changes(world, changes, start_s, makespan_s, cohort, np.where(sends, comm_s, 0.0))


def _too_many_changes(
    world: World,
    changes: Mapping[str, Callable[[float], float]],
    start_s: float,
    makespan_s: float,
    cohort: np.ndarray,
    comm_s: np.ndarray,
) -> InputError:
    """The cause of a round of too many changes: a transfer that takes most of it, else the table that changes most."""
    when = f"in the round that starts at {start_s:g} s and lasts {makespan_s:g} s"
    slowest = int(comm_s.argmax())
    if 2 * comm_s[slowest] > makespan_s:
        rate = f"{world.bandwidth_bps[cohort[slowest]]:g} bit/s"
        return InputError(
            "network",
            f"a transfer takes {comm_s[slowest]:g} s at {rate} at {site_name(world, cohort[slowest])} {when}",
            "check network.update_bytes, and the unit of the sites' bandwidth and round-trip time",
        )
    table = max(changes, key=lambda name: _num_changes(changes[name], start_s, start_s + makespan_s))
    return InputError(
        table,
        f"changes more than {MOST_STEPS:,} times {when}",
        f"use data of longer steps{' or rarer outages (faults.mtbf_s)' * (table == 'power')}, or shorter rounds",
    )


def _num_changes(next_change_s: Callable[[float], float], start_s: float, end_s: float) -> int:
    """How often a value changes between two times, at most MOST_STEPS."""
    ends_s = (change_s for _, change_s, _ in islice(spans(start_s, next_change_s), MOST_STEPS))
    return sum(1 for _ in takewhile(lambda change_s: change_s < end_s, ends_s))


def _overlap_s(begin_s: float, end_s: float, from_s: np.ndarray | float, until_s: np.ndarray) -> np.ndarray:
    """Length of the intersection of [begin_s, end_s] and [from_s, until_s], [k] s."""
    return np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0.0)
