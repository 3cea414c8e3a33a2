"""Workloads: what is learned, on which data. Each in a file of this folder, which is imported whole."""

from hpctrip.config.component import import_all
from hpctrip.learn.workloads.base import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload"]

import_all(__name__)
