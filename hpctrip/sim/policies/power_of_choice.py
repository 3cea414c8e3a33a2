"""Power-of-choice: of a few random sites those with the largest loss."""

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
class PowerOfChoice(Policy):
    """Cho, Wang & Joshi 2020, "Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies", Sec. 4, the variant rpow-d that costs no extra communication: d candidates are drawn by
    their share of the data, and of them the k train whose loss was largest when they last trained; a site that never
    trained comes first, one that cannot be back before the round's deadline, or has no power, last."""

    kind = "power-of-choice"
    rules = 2
    """2: who cannot be back comes last."""
    k: int = Field(10, ge=1)
    """Cohort size (m in the paper)."""
    candidates: int = Field(30, ge=1)
    """d: how many are drawn; at least k, at most all sites."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The k of largest known loss among d; samples stand for data, and work for samples."""
        num_drawn = min(max(self.candidates, self.k), len(sites))
        share = sites.work_s / sites.work_s.sum() if np.count_nonzero(sites.work_s) >= num_drawn else None
        drawn = rng.choice(len(sites), num_drawn, replace=False, p=share)
        loss = np.nan_to_num(LastSeen.of(history, len(sites)).loss, nan=np.inf)
        loss[~np.isfinite(return_s(sites))] = -np.inf
        return Decision(drawn[best_first(loss[drawn])][: self.k])

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
