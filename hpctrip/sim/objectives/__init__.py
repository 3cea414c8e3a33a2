"""What a policy that weighs cohorts aims at: time, energy, carbon or money. Each objective in a file of this folder."""

from hpctrip.base.component import import_all
from hpctrip.sim.objectives.base import OBJECTIVES, Objective

__all__ = ["OBJECTIVES", "Objective"]

import_all(__name__)
