"""Kinds of rounds: which sites start in a round, which updates it averages, and when it ends.

A kind turns the policy's decision into the flights (flights.py) of a round. In a synchronous round, those that start
also arrive. The others walk through the `Events` of a round in the order of simulated time and leave flights under way,
which the next round finds. Everything else, from training to the bill, is the same for all kinds. Shapes: N sites, f
flights.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.config.identity import Added
from hpctrip.sim.faults import Faults
from hpctrip.sim.flights import Flights, RoundTimes, State
from hpctrip.sim.policies.base import MOST_LOCAL_WORK, Decision, work_within
from hpctrip.sim.rounds import Status
from hpctrip.sim.timing import Timing, checked_length_s
from hpctrip.sim.view import SiteView
from hpctrip.sim.world import World


class Rounds(Component):
    """Base of all kinds of rounds."""

    leaves_flights: ClassVar[bool] = True
    """Whether updates may arrive in a later round than that in which their sites start."""

    work_by_speed: Added[int | None] = Field(None, ge=1, le=MOST_LOCAL_WORK)
    """H: local work of the fastest site at full power. The others train as much of it as they can in that time with the
    power that they are believed to have now, at least 1: ceil(H T_i min(c) / c_i) (DyLU, arXiv 2401.09135). Absent: as
    the policy says."""

    work_s: Added[Seconds | None] = Field(None, gt=0)
    """Computing time of a site: its local work is what fits into these seconds with the power that it is believed to
    have now, at least 1. Absent: as the policy says."""

    @model_validator(mode="after")
    def _one_work(self) -> Self:
        if self.work_s is not None and self.work_by_speed is not None:
            raise ValueError("work_s and work_by_speed exclude each other")
        return self

    def with_local_work(self, decision: Decision, view: SiteView) -> Decision:
        """The decision of a policy with the local work of its sites."""
        if self.work_s is not None:
            return replace(decision, local_work=work_within(view, self.work_s)[decision.cohort])
        if self.work_by_speed is None:
            return decision
        fastest_s = view.work_s[view.work_s > 0].min(initial=np.inf)
        with np.errstate(divide="ignore"):  # a site without samples has no work
            share = np.minimum(view.throughput_fraction * fastest_s / view.work_s, 1.0)[decision.cohort]
        work = np.ceil(self.work_by_speed * share * (1 - 1e-12)).astype(np.int64)
        return replace(decision, local_work=np.maximum(work, 1))

    def times(self, world: World, state: State, decision: Decision, work_s: np.ndarray) -> RoundTimes:
        """The round after `state`: its flights, what becomes of them in it, and its length. `work_s` is c_i of all
        sites [N]. A site starts at most once in a round, as random streams are those of a site and a round."""
        raise NotImplementedError

    def discounts(self, age: np.ndarray) -> np.ndarray:
        """Factors in [0, 1] for the weights p_i of updates of this age in rounds, [f]."""
        return np.ones(len(age))

    def is_too_old(self, age: int) -> bool:
        """Whether an update of this age in rounds is given up when it comes."""
        return False

    def check(self, timing: Timing, faults: Faults) -> None:
        """InputError where a flight would have no time of its own, which it needs in order to end in another round."""
        if self.leaves_flights:
            timing.check_own_times(config_key("rounds", self), "synchronous rounds")


ROUNDS = Registry("kind of rounds", default="synchronous", required=Rounds.times, added=True)


@ROUNDS.add
class Synchronous(Rounds):
    """All sites of the cohort start together, and the aggregator waits for each of them (FedAvg), or for those that
    are back by the deadline."""

    kind = "synchronous"
    leaves_flights = False

    def times(self, world: World, state: State, decision: Decision, work_s: np.ndarray) -> RoundTimes:
        """All that start arrive, or are given up."""
        return world.times(state.round + 1, state.clock_s, decision.cohort, work_s, decision.local_work)


SYNCHRONOUS = Synchronous()


class Asynchronous(Rounds):
    """Base of the kinds in which updates may arrive in a later round. An update that s rounds have overtaken weighs
    (1 + s)^-staleness_exponent of what it would have weighed in time."""

    staleness_exponent: float = Field(0.5, ge=0, le=10)
    """0.5: 1 / sqrt(1 + s) (FedBuff, arXiv 2106.06639, Sec. 3). 0: an old update weighs as a new one."""
    max_staleness: int | None = Field(None, ge=0)
    """Updates that more rounds have overtaken are given up when they come; absent: none."""

    def discounts(self, age: np.ndarray) -> np.ndarray:
        """(1 + s)^-a, [f]."""
        return (1.0 + age) ** -self.staleness_exponent

    def is_too_old(self, age: int) -> bool:
        """Whether it is beyond `max_staleness`."""
        return self.max_staleness is not None and age > self.max_staleness


@ROUNDS.add
class Quorum(Asynchronous):
    """A round ends when `num` of the updates that start in it have arrived, or after a grace time for the others. Those
    that come later count in the round in which they come, as do those of earlier rounds that come in this one.

    Where fewer of them arrive, the round ends when none of them is awaited any more. Where no site can start, as all
    that the policy chose are under way, it ends with the first update.
    """

    kind = "quorum"
    num: int = Field(10, ge=1)
    """K: updates of its own that a round waits for."""
    grace_s: Seconds = Field(0.0, ge=0)
    """Seconds for which the round waits for the others when K have arrived."""
    longest_s: Added[Seconds | None] = Field(None, gt=0)
    """Seconds after which the round ends though fewer have arrived, if any has; else with the first. Absent: it waits
    for K."""

    def check(self, timing: Timing, faults: Faults) -> None:
        """Besides, InputError where the grace is no shorter than the deadline, after which nothing can come."""
        super().check(timing, faults)
        if faults.deadline_s is not None and self.grace_s >= faults.deadline_s:
            problem = f"is not below faults.deadline_s = {faults.deadline_s:g}, when all is over"
            raise InputError(f"rounds.grace_s = {self.grace_s:g}", problem, "lower it")

    def times(self, world: World, state: State, decision: Decision, work_s: np.ndarray) -> RoundTimes:
        """The cohort starts at the beginning, as far as it is idle."""
        events = Events(world, state, decision, work_s, self)
        awaited = events.start(decision.cohort)
        missing, until_s = min(self.num, awaited), np.inf
        longest_s = np.inf if self.longest_s is None else state.clock_s + self.longest_s
        while flight := events.next_end(until_s):
            fate = events.receive(flight)
            if fate == Status.ARRIVED:
                until_s = min(until_s, max(longest_s, events.clock_s))
            if not awaited:  # none of this round's own
                break
            if flight.version == state.round:
                awaited -= 1
                missing -= fate == Status.ARRIVED
                if missing <= 0:
                    until_s = min(until_s, events.clock_s + self.grace_s)
                if not awaited:
                    break
        return events.times()


@ROUNDS.add
class Buffered(Asynchronous):
    """A round ends with every `num`th update, whichever site it is from (FedBuff, arXiv 2106.06639). Meanwhile up to
    `concurrency` sites are under way: when an update arrives, the next idle site in the policy's order starts."""

    kind = "buffered"
    num: int = Field(10, ge=1)
    """K: updates that are averaged in a round."""
    concurrency: int = Field(30, ge=1)
    """Sites under way at a time, as far as the policy chooses so many."""

    @model_validator(mode="after")
    def _check_num(self) -> Self:
        if self.num > self.concurrency:
            raise ValueError(
                f"num = {self.num} is above concurrency = {self.concurrency}, the sites under way"
            )
        return self

    def times(self, world: World, state: State, decision: Decision, work_s: np.ndarray) -> RoundTimes:
        """Free places are filled at the beginning and after every update but the last."""
        events = Events(world, state, decision, work_s, self)
        missing = self.num
        while missing:
            events.start(decision.cohort, self.concurrency - events.num_under_way)
            if (flight := events.next_end()) is None:
                break
            missing -= events.receive(flight) == Status.ARRIVED
        return events.times()


@dataclass
class Flight:
    """One of the `Flights`, while a round is being simulated."""

    site: int
    version: int
    start_s: float
    compute_s: float
    comm_s: float
    local_work: int
    status: int
    queue_s: float
    uplink_free_s: float = np.nan

    @property
    def computed_s(self) -> float:
        """When the site has computed."""
        return self.start_s + self.queue_s + self.compute_s

    @property
    def is_sent(self) -> bool:
        """Whether the end of its transfer is known."""
        return not np.isnan(self.comm_s)


class Events:
    """The events of one round in the order of simulated time; simultaneous ones in that of sites.

    A site computes; its transfer then takes the aggregator's link and the uplink of its region, as far as these are
    shared, which serve transfers first come, first served; and the update is at the aggregator, or is given up when the
    deadline has passed since the flight's start. It is part of a round when the kind of rounds receives it.
    """

    def __init__(
        self, world: World, state: State, decision: Decision, work_s: np.ndarray, rounds: Rounds | None = None
    ):
        """`work_s` is c_i of all sites [N] with the local work of the decision; `rounds` tells which updates are too
        old (default: none)."""
        self._rounds = rounds or SYNCHRONOUS
        self._world, self._state, self._work_s = world, state, work_s
        self._local_work = decision.local_work_of(len(world))
        self._wan = cache(lambda version: world.faults.wan(version + 1, len(world), world.seed))
        self.clock_s = state.clock_s
        """Simulated time of the last event."""
        last = state.history.last
        self._link_free_s = last.link_free_s if last else np.nan
        self._earlier = [
            Flight(*row) for row in zip(*(a.tolist() for a in vars(state.flights).values()), strict=True)
        ]
        self._started: list[Flight] = []
        self._busy = {flight.site for flight in self._earlier}  # and those that have started in this round
        self._queue: list[tuple[float, int, int, Flight]] = []  # (time, site, version): no two are equal
        self.num_under_way = len(self._earlier)
        """The number of `under_way`."""
        for flight in self._earlier:
            self._schedule(flight)

    @cached_property
    def _uplinks_free_s(self) -> np.ndarray:
        """When the uplink of each region, by its number, is free for another transfer; NaN: none has queued there."""
        region = self._world.transfers(self._state.clock_s).region
        return self._state.history.uplinks_free_s(region).copy()

    @property
    def under_way(self) -> list[Flight]:
        """Flights that have not been received: those of earlier rounds first."""
        return [flight for flight in (*self._earlier, *self._started) if flight.status == Status.UNDER_WAY]

    def start(self, sites: np.ndarray, most: int | None = None) -> int:
        """Let those of `sites` start now, the first `most` of them, that have no flight under way and have not started
        in this round. Returns the number of those that do: sites that are out are not asked."""
        idle = (site for site in map(int, sites) if site not in self._busy)
        sites = np.fromiter(islice(idle, most), np.int64)
        if not len(sites):
            return 0
        self._busy.update(sites.tolist())
        asked = self._world.available(self.clock_s, sites) > 0
        compute_s = np.full(len(sites), np.inf)
        queue_s = self._world.queue_s(self._state.round + 1, self.clock_s, sites)
        compute_s[asked] = self._world.computing_s(sites[asked], self.clock_s, self._work_s, queue_s[asked])
        alone_s = self._world.transfers(self.clock_s, sites).alone_s
        comm_s = np.where(np.isfinite(compute_s), np.nan, alone_s)  # known when it has computed
        status = np.where(asked, Status.UNDER_WAY, Status.OUT)
        columns = compute_s, comm_s, self._local_work[sites], status, queue_s
        for site, *own in zip(*map(np.ndarray.tolist, (sites, *columns)), strict=True):
            flight = Flight(site, self._state.round, self.clock_s, *own)
            self._started.append(flight)
            if flight.status == Status.UNDER_WAY:
                self._schedule(flight)
        self.num_under_way += (num_asked := int(asked.sum()))
        return num_asked

    def next_end(self, until_s: float = np.inf) -> Flight | None:
        """Go on to the next flight that has come to its end by `until_s`, and return it. None where there is none: then
        it is `until_s`, if any comes later."""
        while self._queue:
            if self._queue[0][0] > until_s:
                self.clock_s = max(self.clock_s, until_s)
                return None
            time_s, *_, flight = heapq.heappop(self._queue)
            self.clock_s = max(self.clock_s, time_s)
            if flight.is_sent:
                return flight
            self._send(flight)
            self._schedule(flight)
        return None

    def receive(self, flight: Flight) -> Status:
        """Take a flight that has come to its end into this round. Returns the fate of its update."""
        late = flight.queue_s + flight.compute_s + flight.comm_s > self._world.deadline_s
        lost = self._wan(flight.version)[0][flight.site]
        fate = Status.LATE if late else Status.LOST if lost else Status.ARRIVED
        if fate == Status.ARRIVED and self._rounds.is_too_old(self._state.round - flight.version):
            fate = Status.TOO_OLD
        flight.status = fate
        self.num_under_way -= 1
        if flight.version < self._state.round:
            self._busy.discard(flight.site)
        return fate

    def times(self) -> RoundTimes:
        """The round, which ends now. No round is shorter than until the first event after its start, or, without any,
        until the deadline. InputError where nobody is under way in it."""
        state, flights = self._state, [*self._started, *self._earlier]
        round = state.round + 1
        if not flights:
            problem = (
                f"starts none of the sites that the policy chose in round {round}, and none is under way"
            )
            raise InputError("rounds.kind", problem, "start those that are idle")
        while self.clock_s <= state.clock_s and self.next_end():
            pass
        waited_s = self.clock_s - state.clock_s
        chosen = np.array([flight.site for flight in flights])
        length_s = waited_s if waited_s > 0 else self._world.nobody_s(state.clock_s, chosen)
        length_s = checked_length_s(round, length_s)
        columns = zip(*(vars(flight).values() for flight in flights), strict=True)
        return RoundTimes(round, state.clock_s, length_s, Flights(*map(np.array, columns)), self._link_free_s)

    def _schedule(self, flight: Flight) -> None:
        """Put the next event of a flight into the queue: its end, where that is known, or the end of its computing."""
        next_s = flight.computed_s + (flight.comm_s if flight.is_sent else 0.0)
        next_s = min(next_s, flight.start_s + self._world.deadline_s)
        heapq.heappush(self._queue, (next_s, flight.site, flight.version, flight))

    def _send(self, flight: Flight) -> None:
        """Begin the transfer of a site that has computed."""
        site = np.array([flight.site])
        alone_s, link_s, region, uplink_s, _ = self._world.transfers(self.clock_s, site)
        extra_s = self._wan(flight.version)[1][flight.site]
        if link_s > 0:
            self._link_free_s = np.fmax(self.clock_s, self._link_free_s) + link_s
        if region is not None and uplink_s[0] > 0:
            begin_s = float(np.fmax(self.clock_s, self._uplinks_free_s[region[0]]))
            flight.uplink_free_s = begin_s + float(self._world.transfers(begin_s, site).uplink_s[0])
            self._uplinks_free_s[region[0]] = flight.uplink_free_s
        passed_s = np.fmax(self._link_free_s, flight.uplink_free_s) - self.clock_s
        flight.comm_s = float(np.fmax(alone_s[0], passed_s) + extra_s)
