"""The paper's policy: power-to-cost ranking, renewed every round, with the dynamic count."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.policies.count import DynamicCount
from hpctrip.sim.policies.ranking import PowerToCost
from hpctrip.sim.rounds import History
from hpctrip.sim.view import SiteView


@POLICIES.add
class PowerTrip(PowerToCost, DynamicCount, Policy):
    """Power-to-cost ranking x Algorithm 1 (Sec. 3)."""

    kind = "powertrip"

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The best-ranked k* sites."""
        order = self.objective.order(self.scores(sites), sites, history)
        return self.decide(order, sites, history)
