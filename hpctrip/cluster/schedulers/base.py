"""Interface of schedulers: pure functions from a view of the cluster to a plan."""

from __future__ import annotations

from typing import ClassVar

from hpctrip.cluster.view import ClusterView, Plan
from hpctrip.config.component import Component, Registry

SCHEDULERS = Registry("scheduler", default="powerflow")


class Scheduler(Component):
    """Base class of schedulers. A scheduler has no memory: its plan depends on the view alone."""

    periodic: ClassVar[bool] = False
    """Whether it decides every round, as its plan changes with time; else only after a submission or completion."""
    elastic: ClassVar[bool] = False
    """Whether a job that cannot be placed with the planned number of GPUs may start with fewer."""

    def check(self, round_s: float) -> None:
        """Raise InputError if the scheduler's own times are incompatible with rounds of `round_s` seconds."""

    def plan(self, view: ClusterView) -> Plan:
        """Decide how many GPUs each of the J jobs of the view gets; in total at most those of the cluster."""
        raise NotImplementedError
