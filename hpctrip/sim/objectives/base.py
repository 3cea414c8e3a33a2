"""The contract of an objective: how much a cohort is worth, and how much a site is wanted besides its ranking.

Shapes: N sites, m candidates (cohort sizes that the policy weighs).
"""

from __future__ import annotations

import sys

import numpy as np
from pydantic import Field

from hpctrip.base.component import Component, Registry
from hpctrip.base.door import config_key, numbers
from hpctrip.base.errors import InputError
from hpctrip.base.units import J_PER_KWH
from hpctrip.sim.rounds import Candidates, History
from hpctrip.sim.view import SiteView

OBJECTIVES = Registry("objective", default="time")
_FARTHEST = 1e3
"""Times the median site's cost, or so many times below it: what costs more or less counts as that."""


class Objective(Component):
    """Base of all objectives. Like a policy it has no memory: all it may use is in the arguments."""

    def merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """What is to be as large as possible, [m]; -inf for what is not to be chosen. `weighed` lacks its merit."""
        raise NotImplementedError

    def preference(self, sites: SiteView, history: History) -> np.ndarray | None:
        """The logarithm of how much more each site is wanted than by its ranking alone, [N]; None: not at all."""
        return None

    def checked_merit(self, weighed: Candidates, sites: SiteView, history: History) -> np.ndarray:
        """The merit, or InputError where it is none: a number of every candidate, which may be infinite."""
        found, place = self.merit(weighed, sites, history), config_key("policy.objective", self)
        return numbers(found, weighed.k.shape, -np.inf, np.inf, place, "the merit of the cohorts")

    def order(self, log_score: np.ndarray, sites: SiteView, history: History) -> np.ndarray:
        """Site indices, best first, by the logarithm of a ranking's score [N]; ties to the smaller index. InputError
        where the preference is none: a number of every site, or -inf."""
        preference = self.preference(sites, history)
        if preference is not None:
            place, shape = config_key("policy.objective", self), (len(sites),)
            preference = numbers(
                preference, shape, -np.inf, sys.float_info.max, place, "the preference of the sites"
            )
            log_score = log_score + preference
        return np.argsort(-log_score, kind="stable")


class Sparing(Objective):
    """Base of the objectives that prefer sites whose own round costs less."""

    site_weight: float = Field(1.0, ge=0, le=100)
    """How much a site's own joules, grams or money count in the ranking: its score is divided by them to this power."""

    def spared(self, spent: np.ndarray) -> np.ndarray:
        """The preference [N] of sites of which each would spend so much [N] in a round."""
        finite = spent[np.isfinite(spent)]
        usual = np.median(finite) if len(finite) else 1.0
        usual = usual if usual > 0 else 1.0
        return -self.site_weight * np.log(np.clip(spent, usual / _FARTHEST, usual * _FARTHEST))


def is_endless(weighed: Candidates) -> np.ndarray:
    """The cohorts whose round would never end, [m] bool: one of their sites has no power."""
    return np.isinf(weighed.round_s) | np.isinf(weighed.energy_j)


def own_spending(sites: SiteView, name: str) -> np.ndarray:
    """Joules, grams or money ("energy_j", "carbon_g", "cost") that each site would spend by itself, [N]: for its work
    and its transfer, without waiting; inf without power. InputError where they are not known."""
    num_sites, throughput = len(sites), sites.throughput_fraction
    with np.errstate(divide="ignore", invalid="ignore"):
        joules = sites.busy_w * sites.work_s / throughput + sites.comm_energy_j
        return np.where(throughput > 0, joules * per_joule(sites, name, num_sites), np.inf)


def per_joule(sites: SiteView, name: str, num_sites: int) -> np.ndarray:
    """What a joule counts at every site, [N]: 1, grams or money. InputError where that is not known."""
    if name == "energy_j":
        return np.ones(num_sites)
    table, values = ("carbon", sites.g_per_kwh) if name == "carbon_g" else ("price", sites.cost_per_kwh)
    known = np.broadcast_to(values, num_sites) / J_PER_KWH
    if np.isnan(known).any():
        raise InputError(
            "policy.objective", f"needs the signal [{table}]", f"set {table}.kind, e.g. constant"
        )
    return known


def needed_gain(sites: SiteView, history: History) -> float:
    """Accuracy that is still to be gained. InputError where there is no target."""
    if np.isnan(sites.target_accuracy):
        raise InputError("policy.objective", "needs a target", "set stop.target_accuracy")
    evaluated = history.evaluated()
    return max(sites.target_accuracy - (evaluated[-1].accuracy if evaluated else 0.0), 0.0)


def recent_gain(history: History, rounds: int = 5) -> tuple[float, list]:
    """(accuracy gained, the rows that it took) from the evaluation that many rounds ago to the last one; no rows where
    nothing was evaluated yet."""
    evaluated = history.evaluated()[-rounds - 1 :]
    if not evaluated:
        return 0.0, []
    first = (evaluated[0].round, evaluated[0].accuracy) if len(evaluated) > rounds else (0, 0.0)
    rows = [row for row in history.rows if first[0] < row.round <= evaluated[-1].round]
    return evaluated[-1].accuracy - first[1], rows
