"""Oort: statistical utility times system speed, with exploration and a pacer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.policies.history_stats import LastSeen
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.rounds import History
from hpctrip.sim.timing import return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class Oort(Policy):
    """Lai et al. 2021, "Oort: Efficient Federated Learning via Guided Participant Selection", Algorithm 1 (training).

    A site's utility is |B_i| sqrt(mean loss^2), clipped, plus a bonus for not having trained for long, times
    (T / t_i)^alpha where its time t_i is beyond the preferred one T. Most of the cohort is drawn by utility, the rest
    among sites that have never trained, by speed. The pacer raises T when the utility that rounds bring has fallen. Of
    a site's losses their mean is known, and stands for the root of their mean square; the bonus counts in units of the
    largest utility. The constants are the paper's and its implementation's. Left out: the blacklist of sites that were
    chosen too often, and the 1.3 K that are asked so that K are back, as all who can be back are."""

    kind = "oort"
    k: int = Field(10, ge=1)
    """Cohort size K."""
    exploration: float = Field(0.9, ge=0, le=1)
    """epsilon: the share of sites that are new, in the first round."""
    exploration_decay: float = Field(0.98, gt=0, le=1)
    """Its factor from round to round."""
    min_exploration: float = Field(0.2, ge=0, le=1)
    """Where the decay ends."""
    straggler_penalty: float = Field(2.0, ge=0, le=100)
    """alpha."""
    preferred_percentile: float = Field(30.0, gt=0, le=100)
    """T in the beginning: this percentile of the sites' times."""
    pacer_step: float = Field(10.0, ge=0, le=100)
    """By how much the pacer raises that percentile."""
    pacer_rounds: int = Field(20, ge=1)
    """W: the pacer compares so many rounds with as many before."""
    cutoff: float = Field(0.95, gt=0, le=1)
    """c: sites are drawn among those of at least this share of the utility that the cohort's last would have."""
    clip_percentile: float = Field(95.0, gt=0, le=100)
    """Utilities above this percentile count as it."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Sites that have trained are exploited, the others explored."""
        last, speed_s = LastSeen.of(history, len(sites)), return_s(sites)
        seen, new = np.flatnonzero(last.seen), np.flatnonzero(~last.seen)
        share = max(self.min_exploration, self.exploration * self.exploration_decay ** len(history))
        num_new = min(len(new), max(round(share * self.k), self.k - len(seen)))
        explored = _drawn(new, 1 / np.maximum(speed_s[new], _SHORTEST_S), num_new, rng)
        num_old = min(self.k - num_new, len(seen))
        if num_old == 0:
            return Decision(explored)
        utility = self._utility(last, speed_s, history)[seen]
        ranked = best_first(utility)
        good = utility >= self.cutoff * utility[ranked[num_old - 1]]
        return Decision(np.concatenate([_drawn(seen[good], utility[good], num_old, rng), explored]))

    def _utility(self, last: LastSeen, speed_s: np.ndarray, history: History) -> np.ndarray:
        """Utility of every site, [N]; 0 where it has not trained."""
        statistical = np.nan_to_num(last.num_samples * last.loss)
        highest = np.percentile(statistical[last.seen], self.clip_percentile)
        round = len(history) + 1
        bonus = np.sqrt(0.1 * np.log(round) / np.maximum(1, round - 1 - last.age)) * highest
        utility = np.minimum(statistical, highest) + bonus
        usable_s = speed_s[np.isfinite(speed_s)]
        preferred_s = np.percentile(usable_s, self._percentile(history)) if len(usable_s) else np.inf
        slow = speed_s > preferred_s
        utility[slow] *= (preferred_s / speed_s[slow]) ** self.straggler_penalty
        return utility

    def _percentile(self, history: History) -> float:
        """Percentile of the preferred time: the pacer compares every W rounds with the W before."""
        gained = [float(np.nansum(row.cohort.num_samples * row.cohort.train_loss)) for row in history.rows]
        width = self.pacer_rounds
        windows = [sum(gained[i : i + width]) for i in range(0, len(gained) - width + 1, width)]
        raised = sum(later < earlier for earlier, later in pairwise(windows))
        return min(100.0, self.preferred_percentile + raised * self.pacer_step)

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)


_SHORTEST_S = 1e-9


def _drawn(sites: np.ndarray, weight: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` of the sites without replacement, by weight; those of weight 0 only where the others do not suffice."""
    if count == 0:
        return sites[:0]
    weight = np.maximum(np.nan_to_num(weight), 0.0) + 1e-12 * max(1.0, float(weight.max()))
    return rng.choice(sites, count, replace=False, p=weight / weight.sum())
