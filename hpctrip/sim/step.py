"""One simulated round, from the aggregator's view of the sites to the row of the results.

    draft      = simulation.begin(state)             # view, decision, timing, weights
    state, row = simulation.finish(draft, outcome)   # clock, row, stop rule

Between the two, the caller trains the cohort, or looks up or assumes what training gave (sim/outcome.py). The main
loop, `plan`, `verify`, benchmarks and tests all go through here, so that what is planned or replayed is what runs.
Everything is a pure function of its arguments. Shapes: N sites, k sites of the cohort.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.rng import stream
from hpctrip.base.validate import instance
from hpctrip.config.component import config_key
from hpctrip.sim.arrivals import SYNCHRONOUS, Rounds
from hpctrip.sim.bill import bill
from hpctrip.sim.flights import Flights, RoundTimes, State
from hpctrip.sim.forecast import PERSISTENCE, Forecast
from hpctrip.sim.noise import DEPTH, curvature, estimate, noise_ratio
from hpctrip.sim.outcome import MEASURED, SITE_REPORTS, Outcome
from hpctrip.sim.policies.base import MOST_VISITS, Decision, Policy
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.quantities import SPENT
from hpctrip.sim.rounds import CohortRound, History, RoundRow, Status, longest_s
from hpctrip.sim.stop import Stop
from hpctrip.sim.view import SiteView
from hpctrip.sim.world import World

NOBODY_LEFT = "nobody left to ask"
"""Stop reason of a run whose sites have spent their budgets; the budgets follow it."""
_LARGEST_EXPONENT = math.log(sys.float_info.max)


@dataclass(frozen=True)
class Draft:
    """A round that is decided and timed, but not yet trained. Arrays [k] in the order of its flights."""

    before: State
    world: World
    """The world in this round: sites that have spent a budget are out."""
    view: SiteView
    decision: Decision
    times: RoundTimes
    """The flights of the round and their times."""
    weights: np.ndarray
    """p_i (Eq. 1) over the sites whose updates arrive, sum 1; 0 for the others. All 0 where none arrives."""
    discounts: np.ndarray
    """Factors in [0, 1] by which these weights are lowered, because an update is old."""

    @property
    def cohort(self) -> np.ndarray:
        """Sites of all flights, in which one may be twice; `decision.cohort` has those that the policy chose."""
        return self.times.flights.site

    @property
    def work_s(self) -> np.ndarray:
        """c_i of this round, [N]: seconds of a site's work at full power."""
        return self.decision.local_work_of(len(self.view)) * self.view.work_s

    @property
    def round(self) -> int:
        """Its number, from 1."""
        return self.before.round + 1


@dataclass(frozen=True)
class Simulation:
    """A world with its profiler, policy and stop rules. Arrays [N]."""

    world: World
    profiler: Profiler
    policy: Policy
    stop: Stop
    num_visits: np.ndarray
    """Samples that each site trains on in a round of local work 1."""
    num_samples: np.ndarray
    """Samples that each site holds."""
    label_counts: np.ndarray
    """Their labels by class, [N, classes]; [0, 0] unless the policy sees them."""
    shares: np.ndarray
    """Weight of each site's update before it is normalised over those that arrive: its samples n_i (Eq. 1), 1, or
    the samples that it visits."""
    seed: int
    forecast: Forecast = PERSISTENCE
    """Forecast of the sites' power over the coming round."""
    rounds: Rounds = SYNCHRONOUS
    """The kind of rounds: which sites start, which updates are averaged, and when a round ends."""
    weighs_work: bool = False
    """Whether an update's weight is multiplied by the local work of its flight."""

    def begin(self, state: State) -> Draft:
        """The round after `state`. InputError where a component returns an invalid value."""
        view = self.view(state)
        return self.draft(state, view, self.decide(view, state.history))

    def view(self, state: State) -> SiteView:
        """The aggregator's view of every site."""
        view = self.profiler.view(
            self.world.after(state.history),
            state.clock_s,
            state.history,
            self.work_s(state.history),
            self.seed,
            self.stop.target,
            self.forecast,
        )
        labels = self.label_counts if self.policy.sees_labels else None
        idle = np.ones(len(self.world), dtype=bool)
        idle[state.flights.site] = False
        return replace(view, num_samples=self.num_samples, labels=labels, idle=idle)

    def work_s(self, history: History) -> np.ndarray:
        """c_i: seconds of one round of local work 1 at full power, [N]; by the speed of the last round where compute is
        measured."""
        seconds_per_sample = self.world.timing.seconds_per_sample
        if self.world.timing.compute == "measured" and history.last is not None:
            cohort = history.last.cohort
            seconds_per_sample = float(cohort.train_wall_s.sum() / cohort.num_samples.sum())
        return self.world.hardware.work_s(self.num_visits, seconds_per_sample)

    def decide(self, view: SiteView, history: History) -> Decision:
        """The policy's choice for the round after `history`, checked: a non-empty set of distinct sites."""
        round = len(history) + 1
        with np.errstate():  # a plug-in may change it
            decision = self.policy.select(view.of_idle(), history, stream(self.seed, "policy", round))
        place = config_key("policy", self.policy)
        decision = instance(decision, Decision, place, "its decision").checked(len(self.world), place, round)
        decision = self.rounds.with_local_work(decision, view)
        work = int(np.max(decision.local_work))
        visits = int((decision.local_work * self.num_visits[decision.cohort]).max())
        if work > 1 and visits > MOST_VISITS:
            problem = f"asks for {work} times the local work in round {round}: {visits:,} samples at a site"
            raise InputError(place, problem, f"the most is {MOST_VISITS:,}: lower it, or train.local_epochs")
        return decision

    def draft(self, state: State, view: SiteView, decision: Decision) -> Draft:
        """The round after `state` with this decision."""
        world = self.world.after(state.history)
        work_s = decision.local_work_of(len(view)) * view.work_s
        times = self.rounds.times(world, state, decision, work_s)
        weights = self.weights(times.flights, times.flights.status)
        discounts = self.rounds.discounts(times.age)
        return Draft(state, world, view, decision, times, weights, discounts)

    def weights(self, flights: Flights, status: np.ndarray) -> np.ndarray:
        """p_i [k] (Eq. 1) of flights [k] with this status [k], of which those that arrived count: sum 1; all 0 where
        none does."""
        shares = np.where(status == Status.ARRIVED, self.shares[flights.site].astype(np.float64), 0.0)
        shares = shares * flights.local_work if self.weighs_work else shares
        return shares / shares.sum() if shares.any() else shares

    def completed(self, state: State) -> State:
        """The state with what an older hpctrip, which had synchronous rounds only, did not record: the weights of
        updates, and the local work of each site."""

        def whole(row: RoundRow) -> RoundRow:
            cohort = row.cohort
            weight = self.weights(RoundTimes.recorded(row).flights, cohort.status)
            weight = np.where(np.isnan(cohort.weight), weight, cohort.weight)
            work = np.full(len(cohort.site), row.local_work)
            return replace(row, cohort=replace(cohort, weight=weight, local_work=work))

        rows = state.history.rows
        lacking = [not c.local_work.all() or np.isnan(c.weight).any() for c in (row.cohort for row in rows)]
        rows = tuple(whole(row) if lacks else row for row, lacks in zip(rows, lacking, strict=True))
        return replace(state, history=History(rows))

    def finish(self, draft: Draft, outcome: Outcome) -> tuple[State, RoundRow]:
        """The state after the round: the virtual clock has moved, one row is added, the stop rules are asked."""
        row = self.row(draft, outcome)
        history = draft.before.history.appended(row)
        return self.judged(State(draft.round, row.clock_s, history)), row

    def judged(self, state: State) -> State:
        """The state with the rule that ends the run: one of the stop rules, or that the sites which the policy would
        choose next have all spent a budget."""
        return replace(state, stop_reason=self.stop.reason(state.history) or self._nobody_left(state))

    def _nobody_left(self, state: State) -> str:
        accounts = self.world.accounts
        spent = accounts.spent(state.history, len(self.world))
        if not spent.any() or len(state.flights):
            return ""
        if not spent.all() and not spent[self.decide(self.view(state), state.history).cohort].all():
            return ""
        return f"{NOBODY_LEFT}: {', '.join(map(str, accounts.site_budgets))}"

    def row(self, draft: Draft, outcome: Outcome) -> RoundRow:
        """The row of the round: its decision, its times, its costs and the outcome of training."""
        if draft.world.timing.compute == "measured":
            draft = _of_measured_work(draft, outcome.train_wall_s)
        before, times, flights, loss = draft.before, draft.times, draft.times.flights, outcome.eval_loss
        candidates = draft.decision.candidates
        measured = dict.fromkeys(MEASURED, math.nan) | dict(outcome.measured)
        status = np.where(outcome.diverged, Status.DIVERGED, flights.status)
        weights = self.weights(flights, status)
        spent, spent_idle = bill(draft.world, times)
        cohort = _cohort_round(draft, outcome, status, weights * draft.discounts, self.num_visits)
        cohort = replace(cohort, **spent)
        idle = _idle_round(draft, spent_idle) if len(spent_idle["site"]) else None
        drawn = cohort.joined(idle)
        arrived, visits = cohort.status == Status.ARRIVED, cohort.num_samples
        # else the mean update is none of weights with sum 1, or of updates of one length
        work = cohort.local_work[arrived]
        whole = (draft.discounts[arrived] == 1).all() and (work == work[:1]).all()
        mean_norm = outcome.mean_update_norm if whole else math.nan
        signal, noise = estimate(cohort.update_norm[arrived], weights[arrived], mean_norm, len(draft.world))
        accuracy = outcome.eval_correct / outcome.eval_seen if outcome.eval_seen else math.nan
        clock_s, straggler = before.clock_s + times.makespan_s, times.straggler
        row = RoundRow(
            round=draft.round,
            clock_start_s=before.clock_s,
            clock_s=clock_s,
            makespan_s=times.makespan_s,
            num_sites=len(draft.decision.cohort),
            num_arrived=int(arrived.sum()),
            voted_num_sites=candidates.vote if candidates else 0,
            straggler=int(cohort.site[straggler]),
            straggler_compute_s=float(flights.compute_s[straggler]),
            straggler_comm_s=float(flights.comm_s[straggler]),
            num_samples=int(visits.sum()),
            accuracy=accuracy,
            eval_correct=outcome.eval_correct,
            eval_seen=outcome.eval_seen,
            eval_loss=loss,
            eval_perplexity=math.inf if loss > _LARGEST_EXPONENT else math.exp(loss),
            train_loss=_weighted_mean(cohort.train_loss[arrived], visits[arrived]),
            efficiency=_efficiency(before.history, accuracy, clock_s),
            update_norm=outcome.update_norm,
            local_work=int(np.max(draft.decision.local_work)),
            mean_update_norm=outcome.mean_update_norm,
            update_cosine=outcome.update_cosine,
            forecast_error=_forecast_error(draft),
            update_signal=signal,
            update_noise=noise,
            **measured,
            energy_j=float(drawn.energy_j.sum()),
            **{name: float(getattr(drawn, name).sum()) for name in SPENT},
            link_free_s=times.link_free_s,
            samples_per_wall_j=visits.sum() / measured["wall_j"] if measured["wall_j"] > 0 else math.nan,
            cohort=cohort,
            candidates=candidates,
            idle=idle,
        )
        rows = (*before.history.rows[-DEPTH:], row)
        return replace(row, noise_ratio=noise_ratio(rows), update_curvature=curvature(rows))


def _cohort_round(
    draft: Draft, outcome: Outcome, status: np.ndarray, weight: np.ndarray, num_visits: np.ndarray
) -> CohortRound:
    """The part of the row with an entry for each flight, whose updates have this `status` and `weight` [k]."""
    world, times, flights, site = draft.world, draft.times, draft.times.flights, draft.cohort
    received, arrived = flights.status == Status.ARRIVED, status == Status.ARRIVED
    power_fraction = world.power_fraction(times.start_s)
    return CohortRound(
        site=site,
        num_samples=np.where(received, flights.local_work * num_visits[site], 0),
        power_fraction=power_fraction[site],
        throughput_fraction=world.hardware.throughput(power_fraction)[site],
        seen_power_fraction=draft.view.power_fraction[site],
        compute_s=flights.compute_s,
        comm_s=flights.comm_s,
        train_wall_s=outcome.train_wall_s,
        status=status,
        start_s=flights.start_s,
        age=times.age,
        weight=weight,
        local_work=flights.local_work,
        queue_s=flights.queue_s,
        uplink_free_s=flights.uplink_free_s,
        **{
            column: np.where(arrived, getattr(outcome, name), math.nan)
            for name, column in SITE_REPORTS.items()
        },
    )


def _idle_round(draft: Draft, idle: dict[str, np.ndarray]) -> CohortRound:
    """The entries of sites that were provisioned and idle, as `bill` has them."""
    power_fraction = draft.world.power_fraction(draft.times.start_s)
    return CohortRound(
        power_fraction=power_fraction[idle["site"]],
        throughput_fraction=draft.world.hardware.throughput(power_fraction)[idle["site"]],
        seen_power_fraction=draft.view.power_fraction[idle["site"]],
        **dict.fromkeys(("num_samples", "local_work"), zeros := np.zeros(len(idle["site"]), np.int64)),
        **dict.fromkeys(("compute_s", "train_wall_s", "weight"), zeros.astype(float)),
        train_loss=np.full(len(zeros), math.nan),
        status=np.full(len(zeros), int(Status.IDLE)),
        **idle,
    )


def _of_measured_work(draft: Draft, train_wall_s: np.ndarray) -> Draft:
    """The draft with the times of a cohort whose work took so long at full power, [k]."""
    work_s, times = draft.work_s.copy(), draft.times
    work_s[draft.cohort] = train_wall_s / draft.world.hardware.full_speed[draft.cohort]
    measured = draft.world.times(draft.round, times.start_s, draft.cohort, work_s, draft.decision.local_work)
    return replace(draft, times=measured)


def _forecast_error(draft: Draft) -> float:
    """Mean over the sites of |believed power - true mean power| while the cohort computed."""
    start_s, frozen = draft.times.start_s, draft.world.timing.power == "frozen"
    span_s = 0.0 if frozen else longest_s(draft.times.flights.compute_s)
    true = draft.world.mean_power_fraction(start_s, start_s + span_s)
    return float(np.abs(draft.view.power_fraction - true).mean())


def _weighted_mean(values: np.ndarray, weights: np.ndarray) -> float:
    """NaN of nothing."""
    return float((values * weights).sum() / weights.sum()) if len(values) else math.nan


def _efficiency(history: History, accuracy: float, clock_s: float) -> float:
    """Eq. 5 over the time since the last evaluation; before the first, accuracy counts as 0."""
    before = history.evaluated()
    start = (before[-1].accuracy, before[-1].clock_s) if before else (0.0, 0.0)
    return (accuracy - start[0]) / (clock_s - start[1])
