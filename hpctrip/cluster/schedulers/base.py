"""The contract of a scheduler: a pure function of what it sees."""

from __future__ import annotations

from typing import ClassVar

from hpctrip.cluster.view import ClusterView, Plan
from hpctrip.config.component import Component, Registry

SCHEDULERS = Registry("scheduler", default="powerflow")


class Scheduler(Component):
    """Base of all schedulers. One has no memory: what it may use is in the view."""

    periodic: ClassVar[bool] = False
    """Whether it decides every round, because its answer changes with time; else only after a job came or went."""
    elastic: ClassVar[bool] = False
    """Whether a job that cannot be placed with the GPUs that it was given may start with fewer."""

    def check(self, round_s: float) -> None:
        """InputError where its own times do not go with rounds of this length."""

    def plan(self, view: ClusterView) -> Plan:
        """How many GPUs each of the J jobs gets, at most as many as there are."""
        raise NotImplementedError
