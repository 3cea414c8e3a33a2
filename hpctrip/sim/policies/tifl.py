"""TiFL: sites are grouped into tiers of similar speed, and a cohort comes from one tier."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.policies.history_stats import LastSeen
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.rounds import History
from hpctrip.sim.timing import return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class TiFL(Policy):
    """Chai et al. 2020, "TiFL: A Tier-based Federated Learning System", Sec. 4: sites are cut into tiers by response
    latency, every round one tier is drawn, and k of its sites at random. Tiers that do worse are drawn more often,
    each as long as it has credits; a site that does not answer in time is in no tier. The paper judges a tier by its
    accuracy on test data of its sites; no site has such data here, so it is judged by the loss of its sites when they
    last trained. The chances change with every interval (the paper: only if the last tier's accuracy has not risen).
    Tiers are those of the present power; a past round counts for the tier in which its first site is."""

    kind = "tifl"
    rules = 2
    """2: credits by tier, and an interval."""
    k: int = Field(10, ge=1)
    """Cohort size; a tier with fewer sites trains whole."""
    tiers: int = Field(5, ge=1, le=1000)
    """How many; equally many sites in each."""
    credits: int = Field(40, ge=1)
    """How many rounds the second tier may train, the third half of that, the next a third, ...; the fastest as many as
    it is drawn. (The paper gives slow tiers fewer, and no numbers.)"""
    interval: int = Field(20, ge=1)
    """I: after every so many rounds the chances of the tiers change; in the beginning they are equal."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """k sites of one tier, as tiers are now."""
        back_s = return_s(sites)
        order = best_first(-back_s)[: max(1, np.isfinite(back_s).sum())]
        tiers = np.array_split(order, min(self.tiers, len(order)))
        tier_of = np.full(len(sites), -1)
        for number, members in enumerate(tiers):
            tier_of[members] = number
        drawn = tier_of[np.array([row.cohort.site[0] for row in history.rows], dtype=np.int64)]
        spent = np.bincount(drawn[drawn >= 0], minlength=len(tiers))
        may = self.credits / np.maximum(1, np.arange(len(tiers)))
        may[0] = np.inf
        chances = np.where(spent < may, self._chances(history, tiers, len(sites)), 0)
        tier = tiers[rng.choice(len(tiers), p=chances / chances.sum())]
        return Decision(rng.choice(tier, min(self.k, len(tier)), replace=False))

    def _chances(self, history: History, tiers: list[np.ndarray], num_sites: int) -> np.ndarray:
        """By the rank of the tier's mean loss at the last change, the largest first, as the paper's ChangeProbs; a tier
        that had never trained stands before all others."""
        last_change = len(history) // self.interval * self.interval
        if last_change == 0:
            return np.ones(len(tiers))
        loss = LastSeen.of(History(history.rows[:last_change]), num_sites).loss
        losses = [loss[members][~np.isnan(loss[members])] for members in tiers]
        mean = np.array([values.mean() if len(values) else np.inf for values in losses])
        chances = np.empty(len(tiers))
        chances[best_first(mean)] = np.arange(len(tiers), 0, -1)
        return chances

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
