"""The same everywhere, always."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from hpctrip.base.series import Signal
from hpctrip.sim.signals.base import HIGHEST, SIGNALS, GridSignal, SignalModel, check_range
from hpctrip.sim.sites import SiteLaw


@SIGNALS.add
class Constant(SignalModel):
    """One number at every site and every time."""

    kind = "constant"
    per_kwh: float = Field(ge=-HIGHEST, le=HIGHEST)
    """For a kilowatt-hour: grams of CO2 in [carbon], money in [price]."""

    def signal(self, table: str, sites: SiteLaw, num_sites: int, seed: int) -> GridSignal:
        """One zone."""
        series = Signal.constant(self.per_kwh)
        check_range(table, series.value)
        return GridSignal(["everywhere"], [series], np.zeros(num_sites, dtype=np.int64), True)
