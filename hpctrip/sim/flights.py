"""Flights: the work of sites, each from its start until its update has arrived, and the times of a round.

A *flight* starts from the global model of its version, may wait in a queue, computes, sends its update, and ends when
the aggregator takes the update into a round's mean, or gives it up. In a synchronous round each ends in the round in
which it starts; other kinds of rounds (arrivals.py) leave some under way. Shapes: f flights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from hpctrip.sim.rounds import History, RoundRow, Status


@dataclass(frozen=True)
class Flights:
    """Some flights. Arrays [f]; times are simulated ones since the start of the run."""

    site: np.ndarray
    version: np.ndarray
    """Finished rounds when it started: it trains the model after them, with the random streams of round version + 1."""
    start_s: np.ndarray
    compute_s: np.ndarray
    """Seconds that the site computes; inf: not done by its deadline, or not asked."""
    comm_s: np.ndarray
    """L_i as the flight has it: seconds from the end of computing to the arrival; NaN while that is not known."""
    local_work: np.ndarray
    """Training of the site, as a multiple of that of [train]."""
    status: np.ndarray
    """Fate of its update, a `Status`, at the end of the last round."""
    queue_s: np.ndarray
    """Seconds that it waits in a queue before it computes."""
    uplink_free_s: np.ndarray
    """When its transfer has passed the uplink of its region, as the flight has it; NaN while that is not known, and
    where transfers do not queue there."""

    def __len__(self) -> int:
        return len(self.site)

    @property
    def begin_s(self) -> np.ndarray:
        """When the site begins to compute."""
        return self.start_s + self.queue_s

    @property
    def computed_s(self) -> np.ndarray:
        """When the site has computed."""
        return self.begin_s + self.compute_s

    @property
    def has_update(self) -> np.ndarray:
        """Which are under way and compute in time, [f] bool: they have been trained, and hosts hold their updates."""
        return (self.status == Status.UNDER_WAY) & np.isfinite(self.compute_s)


@dataclass(frozen=True)
class RoundTimes:
    """Simulated times of one round, before it is trained."""

    round: int
    """Its number, from 1."""
    start_s: float
    makespan_s: float
    """Length of the round."""
    flights: Flights
    """Those that started in the round, in the policy's order, then those that were under way when it started."""
    link_free_s: float = np.nan
    """When the aggregator's shared link is free for another transfer; NaN where transfers do not queue for it."""

    @classmethod
    def recorded(cls, row: RoundRow) -> Self:
        """The times of a recorded round, to which an update that diverged did arrive."""
        sites = row.cohort
        version, work = (
            row.round - 1 - sites.age,
            np.where(sites.local_work, sites.local_work, row.local_work),
        )
        status = np.where(sites.status == Status.DIVERGED, Status.ARRIVED, sites.status)
        times = sites.start_s, sites.compute_s, sites.comm_s
        flights = Flights(sites.site, version, *times, work, status, sites.queue_s, sites.uplink_free_s)
        return cls(row.round, row.clock_start_s, row.makespan_s, flights, row.link_free_s)

    @property
    def end_s(self) -> float:
        """When the round ends."""
        return self.start_s + self.makespan_s

    @property
    def age(self) -> np.ndarray:
        """Rounds that have ended since the flight started, [f]; 0: it started in this one."""
        return self.round - 1 - self.flights.version

    @property
    def straggler(self) -> int:
        """Position of the flight that ended last."""
        flights = self.flights
        ended = (flights.status != Status.OUT) & (flights.status != Status.UNDER_WAY)
        after_s = flights.begin_s - self.start_s + (flights.compute_s + flights.comm_s)
        return int(np.where(ended, after_s, -np.inf).argmax())

    @property
    def arriving(self) -> np.ndarray:
        """Positions of the flights whose updates arrive in the round."""
        return np.flatnonzero(self.flights.status == Status.ARRIVED)

    @property
    def trained(self) -> np.ndarray:
        """Positions of the flights that are trained: those that started in the round, unless it is known already that
        their updates will not arrive."""
        arrives = self.flights.status == Status.ARRIVED
        return np.flatnonzero((self.age == 0) & (arrives | self.flights.has_update))


@dataclass(frozen=True)
class State:
    """State of a run between two rounds, besides the model."""

    round: int = 0
    """Finished rounds."""
    clock_s: float = 0.0
    """Simulated time."""
    history: History = field(default_factory=History)
    stop_reason: str = ""
    """The rule that ended the run; empty: it goes on."""

    @property
    def flights(self) -> Flights:
        """Those under way, as the last row has them: what is recorded is the state, and nothing is kept beside it."""
        rows = self.history.rows
        if not rows:
            return _NONE
        last = RoundTimes.recorded(rows[-1]).flights
        return Flights(*(values[last.status == Status.UNDER_WAY] for values in vars(last).values()))


_NONE = Flights(*np.zeros((9, 0), dtype=np.int64))
