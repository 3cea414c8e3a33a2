"""Rows of the results: one finished round, its sites and its candidates, and the history of all rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Self, TypeVar

import numpy as np

from hpctrip.base.rows import column, counted, spread_defaults

T = TypeVar("T")


def may_lack(doc: str, unit: str = "1") -> Any:
    """A column that older files lack, and that is NaN where nothing is known."""
    return column(doc, unit, default=math.nan)


@dataclass(frozen=True)
class Candidates:
    """The cohort sizes that a policy weighed in one round (Algorithm 1), as arrays [num_candidates]."""

    k: np.ndarray = column("candidate cohort size", "sites", "i8")
    gain: np.ndarray = column("projected accuracy gain dA(k)", "1")
    round_s: np.ndarray = column("estimated round time T(k)", "s")
    efficiency: np.ndarray = column("dA(k) / T(k)", "1/s")
    energy_j: np.ndarray = may_lack("estimated energy of the round (NaN: not asked for)", "J")
    carbon_g: np.ndarray = may_lack("estimated carbon of the round (NaN: unknown)", "g")
    cost: np.ndarray = may_lack("estimated price of the round, in the currency of the input (NaN: unknown)")
    merit: np.ndarray = may_lack("value of the policy's objective (NaN: the efficiency)")

    def __post_init__(self) -> None:
        spread_defaults(self, len(np.atleast_1d(self.k)))

    @property
    def vote(self) -> int:
        """k* = argmax of the merit, or of the efficiency where there is no merit; ties to the smaller k (np.argmax
        returns the first maximum)."""
        has_merit = not np.isnan(self.merit).all()
        return int(self.k[np.argmax(self.merit if has_merit else self.efficiency)])


class Status(IntEnum):
    """Fate of a site's update."""

    ARRIVED = 0
    OUT = 1
    """The site could not be reached when it was to start: it was neither asked nor waited for."""
    LATE = 2
    """It was not back at the deadline, and was given up."""
    LOST = 3
    """The WAN lost it."""
    DIVERGED = 4
    """It came, but was no usable number (server.on_diverged = "drop")."""
    UNDER_WAY = 5
    """It is awaited in a later round."""
    TOO_OLD = 6
    """It came when more rounds had overtaken it than `rounds.max_staleness` allows, and was given up."""
    IDLE = 7
    """There is none: the site was provisioned by its window, and had no flight."""


@dataclass(frozen=True)
class CohortRound:
    """The flights of one round (flights.py), as arrays [k]: those of its cohort in the policy's order, then those that
    were under way when it started. Energies are those of the round, so the sum over all rounds is that of a flight."""

    site: np.ndarray = column("site index", "1", "i8")
    num_samples: np.ndarray = column("samples trained on (0: no update was to arrive in it)", "samples", "i8")
    power_fraction: np.ndarray = column("true power fraction P_i at the round's start", "1")
    throughput_fraction: np.ndarray = column("throughput at that power, relative to that at full power", "1")
    seen_power_fraction: np.ndarray = column("power fraction estimated by the profiler", "1")
    compute_s: np.ndarray = column("simulated elapsed compute time (inf: not done by the deadline)", "s")
    comm_s: np.ndarray = column("simulated communication time L_i (Eq. 3), as the round had it", "s")
    train_loss: np.ndarray = column(
        "mean training loss over the site's local steps (NaN: no update arrived)", "1"
    )
    train_wall_s: np.ndarray = column("wall time that training this site took on its rank", "s")
    status: np.ndarray = column(
        "fate of its update: 0 arrived, 1 out at the start, 2 late, 3 lost by the WAN, 4 diverged, 5 under way, 6 "
        "too old, 7 none: the site was provisioned and idle for comm_s",
        "1",
        "i8",
    )
    loss_before: np.ndarray = may_lack(
        "mean loss of its first batch, at the global model (NaN: no update arrived)"
    )
    loss_after: np.ndarray = may_lack(
        "mean loss of its last batch, before its last step (NaN: no update arrived)"
    )
    update_norm: np.ndarray = may_lack("Euclidean norm of its update |d_i|, as it arrived (NaN: none did)")
    compute_energy_j: np.ndarray = may_lack("energy that the site drew while it computed", "J")
    wait_energy_j: np.ndarray = may_lack("energy that it drew while it sent its update and waited", "J")
    comm_energy_j: np.ndarray = may_lack("network energy of its transfer", "J")
    carbon_g: np.ndarray = may_lack("CO2 of that energy (NaN: unknown)", "g")
    cost: np.ndarray = may_lack("price of that energy, in the currency of the input (NaN: unknown)")
    start_s: np.ndarray = may_lack("simulated time at which it started", "s")
    age: np.ndarray = column("rounds that had ended since it started", "1", "i8", default=0)
    weight: np.ndarray = may_lack("weight of its update in the round's mean (0: it is not in it)")
    local_work: np.ndarray = column(
        "training of the site, as a multiple of that of [train] (0: that of the round)", "1", "i8", default=0
    )
    queue_s: np.ndarray = column("simulated wait in a queue before it computed", "s", default=0.0)
    uplink_free_s: np.ndarray = may_lack(
        "simulated time at which its transfer has passed its region's uplink (NaN: none queues there)", "s"
    )

    def __post_init__(self) -> None:
        spread_defaults(self, len(self.site))

    def of(self, those: np.ndarray) -> CohortRound:
        """Some of the entries, [k] bool."""
        return CohortRound(*(values[those] for values in vars(self).values()))

    def joined(self, other: CohortRound | None) -> CohortRound:
        """These entries and, below, others, if any."""
        if other is None:
            return self
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return CohortRound(*map(np.concatenate, pairs))

    @property
    def energy_j(self) -> np.ndarray:
        """All energy, [k]."""
        return self.compute_energy_j + self.wait_energy_j + self.comm_energy_j


@dataclass(frozen=True)
class RoundRow:
    """One finished round. Simulated times are clock_s, measured ones wall_s; they never share a name. Measured energy
    is wall_j."""

    round: int = column("round number, from 1", "1", "i8")
    clock_start_s: float = column("simulated time at the round's start", "s")
    clock_s: float = column("simulated time at the round's end", "s")
    makespan_s: float = column("simulated duration of the round (Eq. 7)", "s")
    num_sites: int = column("cohort size k: sites that the policy chose", "sites", "i8")
    num_arrived: int = column("sites whose updates were averaged", "sites", "i8")
    voted_num_sites: int = column("k* of the policy's search (0: it has none)", "sites", "i8")
    straggler: int = column("site that finished last", "1", "i8")
    straggler_compute_s: float = column("its simulated compute time", "s")
    straggler_comm_s: float = column("its simulated communication time", "s")
    num_samples: int = column("samples trained on by the cohort", "samples", "i8")
    accuracy: float = column("held-out accuracy of the global model (NaN: not evaluated this round)", "1")
    eval_correct: int = column("held-out samples classified correctly", "samples", "i8")
    eval_seen: int = column("held-out samples evaluated", "samples", "i8")
    eval_loss: float = column("mean held-out loss", "1")
    train_loss: float = column("mean training loss over the cohort's samples", "1")
    efficiency: float = column("accuracy gain per simulated second since the last evaluation (Eq. 5)", "1/s")
    update_norm: float = column("Euclidean norm of the change of the global model", "1")
    wall_s: float = column("wall time of the round, from the end of the previous one", "s")
    train_wall_s: float = column("wall time of local training, slowest rank", "s")
    exchange_wall_s: float = column("wall time of exchanging and applying updates, rank 0", "s")
    evaluate_wall_s: float = column("wall time of evaluation, slowest rank", "s")
    idle_fraction: float = column("share of the hosts' training phase spent waiting for the slowest", "1")
    record_wall_s: float = column("wall time of recording the previous round, rank 0", "s", default=0.0)
    eval_perplexity: float = may_lack("exp(eval_loss); inf where that is too large for a number")
    local_work: int = column(
        "largest training of a site, as a multiple of that of [train]", "1", "i8", default=1
    )
    mean_update_norm: float = may_lack("Euclidean norm of the cohort's mean update |sum p_i d_i|")
    update_signal: float = may_lack(
        "unbiased estimate of |d|^2, d the mean update of all N sites (NaN: unknown)"
    )
    update_noise: float = may_lack("unbiased estimate of s^2, the variance of a site's update (NaN: unknown)")
    noise_ratio: float = may_lack(
        "nu: update_noise / update_signal, each smoothed over the rounds (NaN: unknown)"
    )
    update_cosine: float = may_lack(
        "cosine of the angle between the mean update and the last one (NaN: unknown, or the policy does not use it)"
    )
    update_curvature: float = may_lack(
        "a, curvature of the loss along the mean update; 1: it leads to the minimum there (NaN: unknown)"
    )
    forecast_error: float = may_lack(
        "mean over all sites of |power fraction that the profiler expected - the true mean while the cohort computed|"
    )
    energy_j: float = may_lack("energy of the whole cohort and its transfers", "J")
    compute_energy_j: float = may_lack("of this, while sites computed", "J")
    wait_energy_j: float = may_lack("of this, while sites waited", "J")
    comm_energy_j: float = may_lack("of this, that of the network", "J")
    carbon_g: float = may_lack("CO2 of that energy (NaN: unknown)", "g")
    cost: float = may_lack("price of that energy, in the currency of the input (NaN: unknown)")
    link_free_s: float = may_lack("simulated time until which transfers queue for the aggregator's link", "s")
    wall_j: float = counted("measured energy of all machines since the previous round", "J")
    record_wall_j: float = counted("of this, while the round was planned and the one before recorded", "J")
    train_wall_j: float = counted("of this, until each machine's meter had trained its own sites", "J")
    exchange_wall_j: float = counted("of this, until the new model was there, waiting included", "J")
    evaluate_wall_j: float = counted("of this, evaluating", "J")
    samples_per_wall_j: float = counted("samples trained on for each measured joule", "samples/J")
    cohort: CohortRound = field(repr=False, default=None)  # type: ignore[assignment]
    candidates: Candidates | None = field(repr=False, default=None)
    idle: CohortRound | None = field(repr=False, default=None)
    """Sites that were provisioned by their windows and had no flight, in the same table as the cohort; they are none of
    it."""

    @property
    def billed(self) -> CohortRound:
        """The cohort and the idle sites: all that drew energy in the round."""
        return self.cohort.joined(self.idle)


def longest_s(compute_s: np.ndarray) -> float:
    """The largest finite one of some times [k]; 0 where there is none."""
    return float(np.max(compute_s[np.isfinite(compute_s)], initial=0.0))


@dataclass(frozen=True)
class History:
    """The finished rounds, oldest first. `appended` shares the rows, so keeping it costs one list copy a round."""

    rows: tuple[RoundRow, ...] = ()
    _running: dict[Any, tuple[int, Any]] = field(default_factory=dict, repr=False, compare=False)
    """{key: (number of rows that are in it, value)} of `running`: only saved work, as the rows determine the values."""

    def appended(self, row: RoundRow) -> History:
        """The history with one more round."""
        return History((*self.rows, row), dict(self._running))

    def running(self, key: Hashable, start: T, add: Callable[[T, Sequence[RoundRow]], T]) -> T:
        """The value that `add(value, rows)` makes of `start` and all rows, oldest first. The next history takes it over
        under `key`, so that each round costs its own row. `add` returns a new value."""
        done, value = self._running.get(key, (0, start))
        if done < len(self.rows):
            value = add(value, self.rows[done:])
            self._running[key] = len(self.rows), value
        return value

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def last(self) -> RoundRow | None:
        """The newest row."""
        return self.rows[-1] if self.rows else None

    def curve(self) -> list[tuple[float, float]]:
        """(clock_s, accuracy) after every round; the accuracy is NaN where the model was not evaluated."""
        return [(row.clock_s, row.accuracy) for row in self.rows]

    def total(self, name: str) -> float:
        """A column of the rows, summed over all rounds; 0 before the first."""
        return float(sum(getattr(row, name) for row in self.rows))

    @property
    def num_samples(self) -> int:
        """Samples that the updates trained on which have arrived."""
        return self.running("samples", 0, lambda total, rows: total + sum(row.num_samples for row in rows))

    @property
    def total_work(self) -> int:
        """Local work of all rounds, that of the longest site in each."""
        return self.running("work", 0, lambda total, rows: total + sum(row.local_work for row in rows))

    def total_by_site(self, name: str, num_sites: int) -> np.ndarray:
        """A column of the cohorts, summed over all rounds for each site, [N]."""

        def add(total: np.ndarray, rows: Sequence[RoundRow]) -> np.ndarray:
            total = total.copy()
            for row in rows:
                billed = row.billed
                np.add.at(total, billed.site, getattr(billed, name))  # a site may be in it twice
            return total

        return self.running(("total", name, num_sites), np.zeros(num_sites), add)

    def expected_queue_s(self, num_sites: int) -> np.ndarray:
        """Each site's expected wait in a queue: half the last wait that has ended, half what was expected before it; at
        first 0, [N]."""

        def add(expected: np.ndarray, rows: Sequence[RoundRow]) -> np.ndarray:
            expected = expected.copy()
            for row in rows:
                flights, begin_s = row.cohort, row.cohort.start_s + row.cohort.queue_s
                begins = (begin_s <= row.clock_s) & ((flights.age == 0) | (begin_s > row.clock_start_s))
                begins = np.flatnonzero(begins & (flights.status != Status.OUT))
                site = flights.site[begins]  # of a site that is in it twice, the earlier flight comes later
                for at, where in zip(site[::-1], begins[::-1], strict=True):
                    expected[at] = 0.5 * flights.queue_s[where] + 0.5 * expected[at]
            return expected

        return self.running(("queue", num_sites), np.zeros(num_sites), add)

    def uplinks_free_s(self, region: np.ndarray) -> np.ndarray:
        """When the last transfer so far has passed the uplink of each region, by its number; NaN: none queued there.
        `region` has the numbers of the sites' regions, [N]."""

        def add(free_s: np.ndarray, rows: Sequence[RoundRow]) -> np.ndarray:
            free_s = free_s.copy()
            for row in rows:
                np.fmax.at(free_s, region[row.cohort.site], row.cohort.uplink_free_s)
            return free_s

        return self.running("uplinks", np.full(region.max() + 1, np.nan), add)

    def evaluated(self) -> list[RoundRow]:
        """The rounds after which the global model was evaluated."""
        return self.running("evaluated", [], lambda found, rows: found + [r for r in rows if r.eval_seen > 0])

    def recent_gain(self, rounds: int) -> tuple[float, list[RoundRow]]:
        """(accuracy gained, rounds that it took) from the evaluation that many evaluations ago, or from accuracy 0 at
        the start, to the last one; no rounds before the first evaluation."""
        evaluated = self.evaluated()[-rounds - 1 :]
        if not evaluated:
            return 0.0, []
        first = (evaluated[0].round, evaluated[0].accuracy) if len(evaluated) > rounds else (0, 0.0)
        rows = [row for row in self.rows if first[0] < row.round <= evaluated[-1].round]
        return evaluated[-1].accuracy - first[1], rows


@dataclass(frozen=True)
class LastSeen:
    """The last round in which each site's update arrived. Arrays [N]; NaN where none did."""

    MAX_ROUNDS = 256
    """The newest rounds that are read; a site that has not trained within them counts as never having trained."""

    age: np.ndarray
    """Rounds since then, 0 for the last one; all rounds so far, at most MAX_ROUNDS, where none did."""
    loss: np.ndarray
    """Mean training loss."""
    num_samples: np.ndarray
    """Samples trained on."""

    @classmethod
    def of(cls, history: History, num_sites: int) -> Self:
        """Read a history."""
        never = np.full((3, num_sites), np.nan)  # number of the row, loss, samples
        number, loss, samples = history.running(("last seen", num_sites), (0, never), cls._met)[1].copy()
        age = len(history) - number
        forgotten = ~(age < cls.MAX_ROUNDS)
        age[forgotten] = min(len(history), cls.MAX_ROUNDS)
        loss[forgotten] = samples[forgotten] = np.nan
        return cls(age, loss, samples)

    @staticmethod
    def _met(last: tuple[int, np.ndarray], rows: Sequence[RoundRow]) -> tuple[int, np.ndarray]:
        """(number of rows, [3, N] of the last one in which each site's update arrived) after these rows, too."""
        before, values = last[0], last[1].copy()
        for number, row in enumerate(rows, before + 1):
            cohort = row.cohort  # of two updates of a site, the newer one is first
            arrived = np.flatnonzero(cohort.status == Status.ARRIVED)[::-1]
            values[0, cohort.site[arrived]] = number
            values[1:, cohort.site[arrived]] = cohort.train_loss[arrived], cohort.num_samples[arrived]
        return before + len(rows), values

    @property
    def seen(self) -> np.ndarray:
        """Whether an update of the site has arrived, [N] bool."""
        return ~np.isnan(self.num_samples)
