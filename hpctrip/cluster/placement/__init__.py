"""Which GPUs a job gets: one file for each way."""

from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Parts, Placement
from hpctrip.config.component import import_all

__all__ = ["PLACEMENTS", "Layout", "Parts", "Placement"]

import_all(__name__)
