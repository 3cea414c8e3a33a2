"""Power models: what fraction of its full power each site has, at any simulated time."""

from hpctrip.sim.power import constant, trace, uniform  # noqa: F401  (each registers itself)
from hpctrip.sim.power.base import POWER_MODELS, PowerModel, PowerSupply

__all__ = ["POWER_MODELS", "PowerModel", "PowerSupply"]
