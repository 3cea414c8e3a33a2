"""Placements: choose the GPUs of a job. Every file of this folder is imported."""

from hpctrip.cluster.placement.base import PLACEMENTS, Layout, Machine, Parts, Placement
from hpctrip.config.component import import_all

__all__ = ["PLACEMENTS", "Layout", "Machine", "Parts", "Placement"]

import_all(__name__)
