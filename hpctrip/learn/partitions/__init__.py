"""Partitions: which site owns which training samples. Each in a file of this folder, which is imported whole."""

from hpctrip.base.component import import_all
from hpctrip.learn.partitions.base import PARTITIONS, Partition

__all__ = ["PARTITIONS", "Partition"]

import_all(__name__)
