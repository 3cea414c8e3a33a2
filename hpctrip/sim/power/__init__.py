"""Power models: the power fraction of every site at any simulated time (paper Sec. 5.1, Eq. 6's power_w). Every module
of this package is imported."""

from hpctrip.config.component import import_all
from hpctrip.sim.power.base import POWER_MODELS, PowerModel, PowerSupply, SteadySupply

__all__ = ["POWER_MODELS", "PowerModel", "PowerSupply", "SteadySupply"]

import_all(__name__)
