"""A fixed cohort, chosen once.

The paper's static-optimal is this policy at the best k of a sweep (Eq. 9), found offline: slurm/emnist_static_sweep.sh
runs the sweep, `hpctrip plot sweep` prints that k.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.policies.base import POLICIES, Decision, Policy, check_k
from hpctrip.sim.policies.ranking import PowerToCost
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class Static(PowerToCost, Policy):
    """The top k sites by power-to-cost at the start, kept for the whole run (Sec. 3.2)."""

    kind = "static"
    k: int = Field(70, ge=1)
    """Cohort size."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The first round's cohort, again and again."""
        first = history.rows[0].cohort.site if history.rows else self.rank(sites)[: self.k]
        return Decision(first)

    def check(self, num_sites: int) -> None:
        """k must not exceed N."""
        check_k(self.k, num_sites)
