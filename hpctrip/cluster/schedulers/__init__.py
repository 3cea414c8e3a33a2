"""Schedulers: decide how many GPUs each job gets. Every file of this folder is imported."""

from hpctrip.cluster.schedulers.base import SCHEDULERS, ClusterView, Plan, Scheduler
from hpctrip.config.component import import_all

__all__ = ["SCHEDULERS", "ClusterView", "Plan", "Scheduler"]

import_all(__name__)
