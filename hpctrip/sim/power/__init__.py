"""Power models: what fraction of its full power each site has, at any simulated time."""

from hpctrip.base.component import import_all
from hpctrip.sim.power.base import POWER_MODELS, PowerModel, PowerSupply

__all__ = ["POWER_MODELS", "PowerModel", "PowerSupply"]

import_all(__name__)
