"""Every site has the same power, always."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.sim.power.base import POWER_MODELS, PowerModel, SteadySupply


@POWER_MODELS.add
class Constant(PowerModel):
    """The same power fraction at every site and every time (Fig. 6/7: equal power)."""

    kind = "constant"
    fraction: float = Field(1.0, gt=0, le=1)
    """Power fraction P, in (0, 1]."""

    def supply(self, num_sites: int, seed: int) -> SteadySupply:
        """N equal fractions."""
        return SteadySupply(np.full(num_sites, self.fraction))
