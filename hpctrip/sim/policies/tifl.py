"""TiFL: sites of one speed train together."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.policies.experience import Experience
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.predict import return_s
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class TiFL(Policy):
    """Chai et al. 2020, "TiFL: A Tier-based Federated Learning System", Sec. 4: sites are cut into tiers by response
    latency, every round one tier is drawn, and k of its sites at random. Tiers that do worse are drawn more often,
    each as long as it has credits. What tells how a tier does is there its accuracy on test data of its sites; no
    site has such data here, so it is the loss of its sites when they last trained."""

    kind = "tifl"
    k: int = Field(10, ge=1)
    """Cohort size; a tier with fewer sites trains whole."""
    tiers: int = Field(5, ge=1, le=1000)
    """How many; equally many sites in each."""
    credits: int = Field(200, ge=1)
    """How many rounds each tier but the fastest may train. (The paper gives slow tiers few, and no numbers.)"""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """k sites of one tier, as tiers are now."""
        tiers = np.array_split(best_first(-return_s(sites)), min(self.tiers, len(sites)))
        tier_of = np.empty(len(sites), dtype=np.int64)
        for number, members in enumerate(tiers):
            tier_of[members] = number
        first = [row.cohort.site[0] for row in history.rows]
        spent = np.bincount(tier_of[first], minlength=len(tiers)) if first else np.zeros(len(tiers))
        chances = np.where(
            (spent < self.credits) | (np.arange(len(tiers)) == 0), self._chances(history, tiers), 0
        )
        tier = tiers[rng.choice(len(tiers), p=chances / chances.sum())]
        return Decision(rng.choice(tier, min(self.k, len(tier)), replace=False))

    def _chances(self, history: History, tiers: list[np.ndarray]) -> np.ndarray:
        """By the rank of the tier's mean loss, the largest first, as the paper's ChangeProbs; a tier that never trained
        stands before all others."""
        loss = Experience.of(history, sum(map(len, tiers))).loss
        known = [loss[members][~np.isnan(loss[members])] for members in tiers]
        mean = np.array([values.mean() if len(values) else np.inf for values in known])
        chances = np.empty(len(tiers))
        chances[best_first(mean)] = np.arange(len(tiers), 0, -1)
        return chances

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
