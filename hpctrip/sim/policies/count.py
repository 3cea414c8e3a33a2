"""The dynamic count of sites: Algorithm 1 (Sec. 3.3; prefix search: Sec. 4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, config_key
from hpctrip.sim.noise import bounded_noise, noise_weight, slowdown
from hpctrip.sim.objectives import OBJECTIVES
from hpctrip.sim.policies.base import Decision, Policy
from hpctrip.sim.rounds import Candidates, History, Status
from hpctrip.sim.timing import prefix_in_time, prefix_round_s, prefix_spending
from hpctrip.sim.view import SiteView

_BACK = (Status.ARRIVED, Status.LOST, Status.DIVERGED)
"""Fates of the updates that were sent in time."""


class DynamicCount(Component):
    """Greedy search for the cohort size k with the best projected accuracy gain per second.

    E(k) = dA(k) / T(k), or what the objective puts in its place. Grows at once, shrinks only after `patience_rounds`
    consecutive votes for fewer sites. Where a round has a deadline, only those of the k sites (and of the last round's
    k_r) count in dA(k) that are back by then.
    """

    initial_fraction: float = Field(0.1, gt=0, le=1)
    """First cohort: max(1, round(initial_fraction N)) sites."""
    search: Literal["window", "prefix"] = "window"
    """window: all k within `window` of the last one (Sec. 3.3). prefix: walk the ranking from the top and keep adding
    while E improves (Sec. 4)."""
    window: int = Field(20, ge=1)
    """w: maximum change of k in one round."""
    patience_rounds: int = Field(3, ge=1)
    """Consecutive votes for fewer sites before the cohort shrinks."""
    gain: Literal["scaled", "log", "realized", "measured"] = "scaled"
    """dA(k). scaled: g (k / k_r) ln(1 + k_r) / ln(1 + k). log: g ln(1 + k) / ln(1 + k_r), whose normaliser does not
    depend on k: it stalls at 13 to 27 of 100 sites and cannot reproduce Fig. 10. realized: as scaled, but dA(k_r) = E_r
    T(k_r): the last cohort, if it was evaluated, has the efficiency E_r of its round (Eq. 5), with which projections of
    other k are compared ("compared to the previously measured performance", Sec. 4). measured, not in the paper:
    g s(k_r) / s(k) with the slowdown s of k sites that `goodput` derives from measured noise and curvature."""
    trend_rounds: int = Field(5, ge=1)
    """Number of last rounds over which g_r is the mean accuracy gain per round."""
    min_gain: float = Field(1e-4, gt=0)
    """Floor of g_r."""
    round_time: Literal["mean-power", "clock"] = "mean-power"
    """T(k). mean-power: Algorithm 1's c / mean P + max L over the top k. clock: the time by `timing.clock`."""
    objective: OBJECTIVES.field() = Field(default_factory=dict, validate_default=True)
    """The quantity that is maximised, and its preference among sites."""

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: the measured gain weighs the noise by the measured curvature."""
        return 2 if self.compares_updates else 1

    @property
    def compares_updates(self) -> bool:
        """Whether the gain is measured."""
        return self.gain == "measured"

    def decide(self, order: np.ndarray, sites: SiteView, history: History) -> Decision:
        """The cohort: a prefix of the ranking `order` [N], with every candidate that was weighed."""
        last = history.last
        if last is None:
            return Decision(order[: max(1, round(self.initial_fraction * len(order)))])
        candidates = self.candidates(order, sites, last.num_sites, self.trend(history), history)
        k = candidates.vote
        if k < last.num_sites and 1 + _pending_votes_down(history) < self.patience_rounds:
            k = last.num_sites
        return Decision(order[:k], candidates)

    def candidates(
        self, order: np.ndarray, sites: SiteView, num_sites: int, trend: float, history: History
    ) -> Candidates:
        """Every k that the search weighs, after a round of `num_sites` sites with accuracy trend g_r."""
        if self.search == "window":
            k = np.arange(max(1, num_sites - self.window), min(len(order), num_sites + self.window) + 1)
        else:
            k = np.arange(1, len(order) + 1)
        clock = sites.clock if self.round_time == "clock" else self.round_time
        round_s = prefix_round_s(sites, order[: k[-1]], clock)[k - 1]
        in_time, before = prefix_in_time(sites, order[: k[-1]])[k - 1], num_sites
        if np.isfinite(sites.deadline_s) and history.last:  # late updates brought nothing
            before = max(1, int(np.isin(history.last.cohort.status, _BACK).sum()))
        if self.gain in ("scaled", "realized"):
            gain = trend * (in_time / before) * np.log1p(before) / np.log1p(np.maximum(in_time, 1))
            if self.gain == "realized" and history.last and history.last.eval_seen:
                gain = np.where(k == num_sites, history.last.efficiency * round_s, gain)
        elif self.gain == "log":
            gain = trend * np.log1p(in_time) / np.log1p(before)
        else:
            counts = np.append(np.maximum(in_time, 1), before)
            slower = slowdown(counts, len(sites), bounded_noise(history.rows), noise_weight(history.rows))
            gain = trend * slower[-1] / slower[:-1] * (in_time > 0)
        spent = {name: values[k - 1] for name, values in prefix_spending(sites, order[: k[-1]]).items()}
        weighed = Candidates(k, gain, round_s, gain / round_s, **spent)
        place = config_key("policy.objective", self.objective)
        merit = self.objective.merit(weighed, sites, history)
        merit = numbers(merit, k.shape, -np.inf, np.inf, place, "the merit of the cohorts")
        weighed = replace(weighed, merit=merit)
        return _walked(weighed) if self.search == "prefix" else weighed

    def trend(self, history: History) -> float:
        """g_r: smoothed accuracy gain per round, floored. Before the first evaluation the accuracy counts as 0."""
        gain, rows = history.recent_gain(self.trend_rounds)
        return max(gain / max(1, len(rows)), self.min_gain)


def _walked(weighed: Candidates) -> Candidates:
    """The candidates up to the first that does not improve on the one before."""
    with np.errstate(invalid="ignore"):  # between two of -inf
        worse = np.flatnonzero(np.diff(weighed.merit) <= 0)
    walked = slice(0, worse[0] + 2 if len(worse) else len(weighed.k))
    return Candidates(**{name: values[walked] for name, values in vars(weighed).items()})


def _pending_votes_down(history: History) -> int:
    """Newest consecutive rounds that voted for fewer sites than they used. (A vote that was followed is no longer
    pending: its round used exactly what it voted for.)"""
    count = 0
    for row in reversed(history.rows):
        if not 0 < row.voted_num_sites < row.num_sites:
            break
        count += 1
    return count


class FixedOrDynamic(DynamicCount, Policy):
    """Base of the rankings by one property of the sites, with either count."""

    k: int | None = Field(None, ge=1)
    """Fixed cohort size; absent: Algorithm 1 decides."""

    def log_score(self, sites: SiteView) -> np.ndarray:
        """The logarithm of every site's score, [N]; -inf for those that come last."""
        raise NotImplementedError

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k first sites of the ranking."""
        with np.errstate(divide="ignore"):
            log_score = self.log_score(sites)
        return self.decide(self.objective.order(log_score, sites, history), sites, history)

    def decide(self, order: np.ndarray, sites: SiteView, history: History) -> Decision:
        """The first k sites, where k is fixed; else as Algorithm 1."""
        return Decision(order[: self.k]) if self.k else super().decide(order, sites, history)
