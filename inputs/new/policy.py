"""A policy: which sites train in the next round.

hpctrip --plugin NAME.py -o policy.kind=NAME
"""

import numpy as np
from pydantic import Field

from hpctrip.api import POLICIES, Decision, Policy


@POLICIES.add
class Mine(Policy):
    """The k sites that have the most power for a second of their transfer."""

    kind = "NAME"
    k: int = Field(10, ge=1)
    """Number of sites."""

    def select(self, sites, history, rng):
        """`sites` are arrays with one entry a site (power_fraction, comm_s, distance_m ...), `history.rows` the
        finished rounds, `rng` random numbers of this round. Keep no state: a run can be resumed and replayed."""
        score = sites.power_fraction / sites.comm_s
        return Decision(np.argsort(-score)[: self.k])
