"""FedCS: as many sites as fit a deadline."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.units import Seconds
from hpctrip.sim.policies.base import POLICIES, Decision, Policy
from hpctrip.sim.policies.ranking import best_first
from hpctrip.sim.rounds import History
from hpctrip.sim.timing import prefix_round_s, return_s
from hpctrip.sim.view import SiteView


@POLICIES.add
class FedCS(Policy):
    """Nishio & Yonetani 2019, "Client Selection for Federated Learning with Heterogeneous Resources in Mobile Edge",
    Protocol 2 and Algorithm 3: of a random share C of the sites, greedily those that lengthen the round least, until
    the next would miss the deadline. There uploads follow one another; here a round lasts as the clock says."""

    kind = "fedcs"
    deadline_s: Seconds = Field(60.0, gt=0)
    """T_round. The paper's 3 minutes are those of mobile phones."""
    fraction: float = Field(1.0, gt=0, le=1)
    """C: the share of the sites that is asked for its resources every round."""

    def select(self, sites: SiteView, history: History, rng: np.random.Generator) -> Decision:
        """The longest prefix of those asked, by when they return, that keeps the deadline; at least one site."""
        num_asked = max(1, round(self.fraction * len(sites)))
        asked = np.sort(rng.choice(len(sites), num_asked, replace=False))
        order = asked[best_first(-return_s(sites)[asked])]
        in_time = np.flatnonzero(prefix_round_s(sites, order, sites.clock) <= self.deadline_s)
        return Decision(order[: in_time[-1] + 1 if len(in_time) else 1])
