"""Schedulers: who gets how many GPUs. Each in a file of this folder, which is imported whole."""

from hpctrip.cluster.schedulers.base import SCHEDULERS, Scheduler
from hpctrip.cluster.view import ClusterView, Plan
from hpctrip.config.component import import_all

__all__ = ["SCHEDULERS", "ClusterView", "Plan", "Scheduler"]

import_all(__name__)
