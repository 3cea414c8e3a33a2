"""Power that never changes: equal at all sites, or drawn for each."""

from __future__ import annotations

from typing import Self

import numpy as np
from pydantic import Field, model_validator

from hpctrip.base.rng import stream
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


@POWER_MODELS.add
class Uniform(PowerModel):
    """P_i ~ U(low, high), drawn once per site (paper Sec. 5.1: U(0.1, 1.0))."""

    kind = "uniform"
    low: float = Field(0.1, gt=0, le=1)
    """Smallest power fraction."""
    high: float = Field(1.0, gt=0, le=1)
    """Largest power fraction."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")
        return self

    def supply(self, num_sites: int, seed: int) -> SteadySupply:
        """N fractions from the stream (seed, "power")."""
        return SteadySupply(stream(seed, "power").uniform(self.low, self.high, num_sites))
