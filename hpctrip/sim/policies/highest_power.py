"""The sites with the most power, a fixed number of them or as many as Algorithm 1 says."""

from __future__ import annotations

import numpy as np

from hpctrip.sim.policies.base import POLICIES
from hpctrip.sim.policies.count import FixedOrDynamic
from hpctrip.sim.view import SiteView


@POLICIES.add
class HighestPower(FixedOrDynamic):
    """Sites by power alone (Sec. 3.1), blind to the WAN."""

    kind = "highest-power"

    def log_score(self, sites: SiteView) -> np.ndarray:
        """That of the power fraction."""
        return np.log(sites.power_fraction)
