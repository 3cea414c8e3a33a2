"""Every site, every round."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class AllSites(Policy):
    """The whole fleet (Sec. 3.2: select all sites)."""

    kind = "all"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """All N sites."""
        return Decision(np.arange(len(sites)))
