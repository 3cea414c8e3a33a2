"""Which GPUs a job gets: one file for each way."""

from hpctrip.base.component import import_all
from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Parts, Placement

__all__ = ["PLACEMENTS", "Layout", "Parts", "Placement"]

import_all(__name__)
