"""FedZero's selection: sites that can do their round on spare power within a deadline, each in its turn."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.units import Seconds
from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.rounds import History, Status
from hpctrip.sim.timing import return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class FedZero(Policy):
    """The k sites of the largest weighted statistical utility that can finish within the shortest round in which k can
    (Wiesner et al., e-Energy 2024, Sec. 4; arXiv 2305.15092).

    A site that has trained is blocked, and released again at random, the later the more often it trained, so that all
    sites take part. What differs from the paper: excess energy is the power that a site has to spare, P_i, where the
    grid is clean enough, and no two sites share it; power is expected as the profiler expects it ([forecast]); a site
    does all its work or none of it (the paper: from one epoch to five, at other speeds), so that the integer program is
    a choice of the best k; a free site that is not chosen is drawn for again in the next round (the paper: it stays
    free); where fewer than k are free and fit, others fill up (the paper waits).
    """

    kind = "fedzero"
    k: int = Field(10, ge=1)
    """Cohort size."""
    longest_round_s: Seconds = Field(3600.0, gt=0)
    """d_max: a site that needs longer for its work and its transfer is chosen only if there are not enough others."""
    step_s: Seconds = Field(60.0, gt=0)
    """The lengths of rounds that are tried are multiples of this: the paper's minute, for rounds of up to an hour.
    Nothing shorter is tried where sites are back sooner."""
    max_g_per_kwh: float | None = Field(None, ge=0, le=1e6)
    """Power counts as excess where the grid has at most so much CO2 ([carbon]); absent: everywhere."""
    fairness: float = Field(1.0, ge=0, le=10)
    """alpha: a blocked site is released with probability (p - mean p)^-alpha, or 1 where that is more; p is how often
    it took part, the mean is over all sites. 0: at once."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """Those of the largest utility that are back in time."""
        needed_s = return_s(sites)
        fits = needed_s <= self.longest_round_s
        if self.max_g_per_kwh is not None:
            if np.isnan(sites.g_per_kwh).any():
                problem = f"policy.max_g_per_kwh = {self.max_g_per_kwh:g}"
                raise InputError(problem, "needs the signal [carbon]", "set carbon.kind, e.g. constant")
            fits &= sites.g_per_kwh <= self.max_g_per_kwh
        free = ~self._blocked(len(sites), history, rng)
        # free before blocked, fitting before not; of what is left the soonest back, until k are found
        tier = 2 * ~fits + ~free
        last = np.lexsort((needed_s, tier))[self.k - 1]
        round_s = np.ceil(needed_s[last] / self.step_s) * self.step_s
        chosen = np.flatnonzero(tier < tier[last])
        candidates = np.flatnonzero((tier == tier[last]) & (needed_s <= round_s))
        best = candidates[np.argsort(-self._utility(sites, history)[candidates], kind="stable")]
        return Decision(np.concatenate([chosen, best[: self.k - len(chosen)]]))

    def _utility(self, sites: SiteView, history: History) -> np.ndarray:
        """What the integer program maximises, [N]: the samples that a site trains on, weighted by its statistical
        utility, which is their number times the loss that it last reported; who never did counts as the highest. Oort's
        utility, which FedZero takes, has the root mean square of the samples' losses in place of their mean."""
        loss = np.full(len(sites), np.nan)
        for row in history.rows:
            reported = (row.cohort.status == Status.ARRIVED) & ~np.isnan(row.cohort.train_loss)
            loss[row.cohort.site[reported]] = row.cohort.train_loss[reported]
        highest = np.nanmax(loss) if not np.isnan(loss).all() else 1.0
        return sites.work_s**2 * np.where(np.isnan(loss), highest, loss)

    def _blocked(self, num_sites: int, history: History, rng: np.random.Generator) -> np.ndarray:
        """Whether a site took part since it was last released, [N] bool. The release is drawn anew every round, so that
        nothing but the history has to be remembered."""
        count = np.zeros(num_sites)
        for row in history.rows:
            count[row.cohort.site] += 1
        above = np.maximum(count - count.mean(), 1.0)
        return rng.uniform(size=num_sites) >= above**-self.fairness

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
