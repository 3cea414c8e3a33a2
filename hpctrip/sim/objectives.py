"""Objectives of the dynamic count: the worth of a cohort, and the preference for sites besides their ranking.

An objective has no memory: everything it may use is in the arguments. Shapes: N sites, m candidates (cohort sizes that
the policy weighs).
"""

from __future__ import annotations

import sys
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.units import Grams, Joules, Seconds
from hpctrip.base.validate import numbers
from hpctrip.config.component import Component, Registry, config_key
from hpctrip.sim.quantities import ENERGY, QUANTITIES, Quantity
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView

OBJECTIVES = Registry("objective", default="time")
_TREND_ROUNDS = 5
"""Evaluations over which an objective takes the recent gain."""
_QUANTITIES = {quantity.name: quantity for quantity in QUANTITIES}
_MAX_COST_RATIO = 1e3
"""A site's cost counts as at most this multiple of the median amount, and as at least its inverse, also where a site
earns money."""


class Objective(Component):
    """Base of all objectives."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """The quantity to maximise, [m]; -inf for candidates that must not be chosen. The merit of `weighed` itself is
        not set yet."""
        raise NotImplementedError

    def preference(self, sites: SiteView, history: History) -> np.ndarray | None:
        """Summand of the logarithm of each site's ranking score, [N]; None: nothing."""
        return None

    def order(self, log_score: np.ndarray, sites: SiteView, history: History) -> np.ndarray:
        """Site indices, best first, by the logarithm of a ranking's score [N] and the preference; ties to the smaller
        index. InputError where the preference is not a number, or -inf, for every site."""
        preference = self.preference(sites, history)
        if preference is not None:
            place, what = config_key("policy.objective", self), "the preference of the sites"
            log_score = log_score + numbers(
                preference, (len(sites),), -np.inf, sys.float_info.max, place, what
            )
        return np.argsort(-log_score, kind="stable")


@OBJECTIVES.add
class Time(Objective):
    """The most projected accuracy gain per second (Sec. 3.3): the paper's objective."""

    kind = "time"

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) / T(k)."""
        return weighed.efficiency


class CostAware(Objective):
    """Base of the objectives that prefer sites whose own round costs less."""

    site_weight: float = Field(1.0, ge=0, le=100)
    """Weight of a site's own joules, grams or cost in the ranking: its score is divided by these to this power."""

    def weights(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """{quantity: how much a site's own amount of it counts in the ranking now, from 0}."""
        return {}

    def preference(self, sites: SiteView, history: History) -> np.ndarray:
        """Sites that spend little of what counts."""
        preference = np.zeros(len(sites))
        for quantity, weight in self.weights(sites, history).items():
            preference += weight * self.cost_preference(own_spending(sites, quantity))
        return preference

    def cost_preference(self, spent: np.ndarray) -> np.ndarray:
        """The preference [N] for sites each of which would spend `spent` [N] in a round of its own."""
        amounts = np.abs(spent[np.isfinite(spent) & (spent != 0)])
        median = np.median(amounts) if len(amounts) else 1.0
        bounded = np.clip(spent, median / _MAX_COST_RATIO, median * _MAX_COST_RATIO)
        return -self.site_weight * np.log(bounded)


@OBJECTIVES.add
class Zeus(CostAware):
    """The most accuracy gain per eta E + (1 - eta) P_max T, the cost of Zeus (You et al., NSDI 2023, Eq. 2).

    Zeus' P_max is the power limit of its GPU; here it is the power of all sites at full speed.
    """

    kind = "zeus"
    rules = 2
    """2: a round that would never end is worth nothing, also where energy alone counts, or time."""
    eta: float = Field(0.5, ge=0, le=1)
    """1: only energy counts, 0: only time."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) over the cost."""
        max_w = len(sites) * sites.full_power_w
        with np.errstate(invalid="ignore"):
            cost = self.eta * weighed.energy_j + (1 - self.eta) * max_w * weighed.round_s
        return _gain_per(weighed.gain, np.where(_is_endless(weighed), np.inf, cost))

    def weights(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """Energy counts by eta."""
        return {ENERGY: self.eta}


@OBJECTIVES.add
class RelativeGain(CostAware):
    """Time against energy by their relative changes, the greedy step of energy-aware schedulers.

    Sites are added as long as the time to the target falls by more than `exchange` percent for each percent of energy:
    (dTTA / TTA) / (dE / E) > exchange, where a cohort's TTA is proportional to T(k) / dA(k) and its energy to
    E(k) / dA(k). That walk ends where TTA x E^exchange is least, so this minimum is searched directly.
    """

    kind = "relative-gain"
    rules = 2
    """2: a round that would never end is worth nothing, and does not count in the others' share of energy."""
    exchange: float = Field(1.0, ge=0, le=100)
    """Value of one percent of energy in percent of time: 0 is `time`, 1 the energy-delay product."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """The inverse of TTA x E^exchange, up to factors that all candidates share."""
        endless = _is_endless(weighed)
        max_j = weighed.energy_j.max(initial=0.0, where=~endless)
        energy_j = np.where(endless, np.inf, weighed.energy_j) / (max_j or 1.0)
        share = _gain_per(weighed.gain / (weighed.gain.max() or 1.0), energy_j)
        return weighed.efficiency * share**self.exchange

    def weights(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """Energy counts by what it is worth."""
        return {ENERGY: self.exchange}


@OBJECTIVES.add
class WithinBudget(CostAware):
    """The most accuracy gain per second among the cohorts whose gain for what they spend would reach the target
    accuracy with what is left of every budget; where there is none, the most gain for what is spent. A cohort that
    spends nothing, or earns money, is within every budget."""

    kind = "budget"
    energy: Joules | None = Field(None, gt=0)
    """Energy of the whole run, e.g. "500 kWh"."""
    carbon: Grams | None = Field(None, gt=0)
    """CO2 of the whole run, e.g. "20 kg"."""
    cost: float | None = Field(None, gt=0)
    """Cost of the whole run, in the currency of the input (accounts.currency)."""

    @model_validator(mode="after")
    def _any(self) -> Self:
        if not self._budgets:
            raise ValueError("needs one or more of energy, carbon and cost")
        return self

    @property
    def _budgets(self) -> dict[Quantity, float]:
        budgets = {quantity: getattr(self, quantity.name) for quantity in QUANTITIES}
        return {quantity: budget for quantity, budget in budgets.items() if budget is not None}

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) / T(k) where the budgets last, -inf where they do not; dA(k) over the scarcest where they never do."""
        needs = self._needs(sites, history)
        spent = {quantity: getattr(weighed, quantity.column) for quantity in needs}
        lasts = [_gain_per(weighed.gain, spent[quantity]) / need for quantity, need in needs.items()]
        scarcest = np.min(np.where(np.array([*spent.values()]) <= 0, np.inf, lasts), axis=0)
        return np.where(scarcest >= 1, weighed.efficiency, -np.inf) if (scarcest >= 1).any() else scarcest

    def weights(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """Each budget counts the more the scarcer it is: not at all where the gain of the last rounds for what they
        spent would leave all of it over."""
        weights = {}
        gain, rows = history.recent_gain(_TREND_ROUNDS)
        for quantity, need in self._needs(sites, history).items():
            spent = sum(getattr(row, quantity.column) for row in rows)
            if rows and spent <= 0:
                continue  # nothing was spent, or money was earned
            weights[quantity] = np.clip(need * spent / gain, 0, 1) if gain > 0 and spent > 0 else 1.0
        return weights

    def _needs(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """{quantity: accuracy that has to be gained for each joule, gram or coin that is left of it}."""
        gain = _needed_gain(sites, history)
        needs = {}
        for quantity, budget in self._budgets.items():
            left = budget - history.total(quantity.column)
            needs[quantity] = gain / max(left, 1e-9 * budget)
        return needs


@OBJECTIVES.add
class Deadline(CostAware):
    """The most accuracy gain for a gram of carbon among the cohorts whose gain per second would reach the target
    accuracy by the deadline; where there is none, the most gain per second."""

    kind = "deadline"
    deadline_s: Seconds = Field(gt=0)
    """Simulated time by which the target accuracy must be reached."""
    least: Literal["carbon", "energy", "cost"] = "carbon"
    """The quantity that is minimised."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """dA(k) over what is spent where there is time for it, -inf elsewhere; dA(k) / T(k) where there never is."""
        in_time = weighed.efficiency >= self._need(sites, history)
        if not in_time.any():
            return weighed.efficiency
        # a price may be below 0: then the most money for a gain is the best
        with np.errstate(divide="ignore", invalid="ignore"):  # no gain is never in time
            spent = getattr(weighed, _QUANTITIES[self.least].column) / weighed.gain
        return np.where(in_time, -spent, -np.inf)

    def weights(self, sites: SiteView, history: History) -> dict[Quantity, float]:
        """The quantity counts the more the faster the last rounds were than the deadline asks for."""
        need, (gain, rows) = self._need(sites, history), history.recent_gain(_TREND_ROUNDS)
        took_s = sum(row.makespan_s for row in rows)
        slack = 1 - need * took_s / gain if gain > 0 else float(not rows)
        return {_QUANTITIES[self.least]: np.clip(slack, 0, 1)}

    def _need(self, sites: SiteView, history: History) -> float:
        """Accuracy that has to be gained in every second that is left; inf where none is."""
        left_s = self.deadline_s - sites.clock_s
        return _needed_gain(sites, history) / left_s if left_s > 0 else np.inf


def _gain_per(gain: np.ndarray, spent: np.ndarray) -> np.ndarray:
    """The gain for what is spent, [m]: 0 where nothing is gained, inf where a gain costs nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(gain > 0, gain / spent, 0.0)


def own_spending(sites: SiteView, quantity: Quantity) -> np.ndarray:
    """The amount of a quantity that each site would spend by itself, [N]: for its work (by the aggregate-throughput
    clock, that of all sites) and its transfer, without waiting; inf without power. InputError where the grid signal of
    the quantity is not known."""
    per_joule, throughput = quantity.per_joule(sites), sites.throughput_fraction
    if np.isnan(per_joule).any():
        table = quantity.signal
        raise InputError(
            "policy.objective", f"needs the signal [{table}]", f"set {table}.kind, e.g. constant"
        )
    work_s = sites.work_s.sum() if sites.clock == "aggregate-throughput" else sites.work_s
    with np.errstate(divide="ignore", invalid="ignore"):
        joules = sites.busy_w * work_s / throughput + sites.comm_energy_j
        return np.where(throughput > 0, joules * per_joule, np.inf)


def _is_endless(weighed: Candidates) -> np.ndarray:
    """Whether the cohort's round would never end, [m] bool: one of its sites has no power."""
    return np.isinf(weighed.round_s) | np.isinf(weighed.energy_j)


def _needed_gain(sites: SiteView, history: History) -> float:
    """Accuracy that is still to be gained. InputError where there is no target."""
    if np.isnan(sites.target_accuracy):
        raise InputError("policy.objective", "needs a target", "set stop.target_accuracy")
    evaluated = history.evaluated()
    return max(sites.target_accuracy - (evaluated[-1].accuracy if evaluated else 0.0), 0.0)
