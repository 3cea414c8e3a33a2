"""Power models: what fraction of its full power each site has, at any simulated time."""

from hpctrip.base.component import import_all
from hpctrip.sim.power.base import POWER_MODELS, PowerModel, PowerSupply, mean_fraction

__all__ = ["POWER_MODELS", "PowerModel", "PowerSupply", "mean_fraction"]

import_all(__name__)
