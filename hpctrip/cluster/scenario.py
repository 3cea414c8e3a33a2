"""Scenario of a simulated cluster: the root of its input file."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.cluster.budgets import BUDGETS
from hpctrip.cluster.decisions import Clock
from hpctrip.cluster.frequencies import FREQUENCIES
from hpctrip.cluster.jobs import Jobs
from hpctrip.cluster.machine import Machine
from hpctrip.cluster.models import Models
from hpctrip.cluster.placement import PLACEMENTS
from hpctrip.cluster.profiles import Speeds
from hpctrip.cluster.schedulers import SCHEDULERS
from hpctrip.cluster.simulator import Simulator
from hpctrip.cluster.traces import TRACES
from hpctrip.config.component import Component
from hpctrip.config.identity import NotInResult
from hpctrip.sim.hardware.gpu_power import GPUS


class ClusterScenario(Component):
    """One simulation of a cluster: the whole input file."""

    name: NotInResult[str] = Field("cluster", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the scenario and the results file."""
    label: NotInResult[str | None] = None
    """Name of this run in figures; absent: its scheduler."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed from which every random stream derives."""
    plugins: NotInResult[list[PathName]] = []
    """Python files to run first: they add your own schedulers or traces."""
    cluster: Machine = Machine()
    gpu: GPUS.field() = Field(default_factory=dict, validate_default=True)
    jobs: TRACES.field() = Field(default_factory=dict, validate_default=True)
    models: Models = Models()
    placement: PLACEMENTS.field() = Field(default_factory=dict, validate_default=True)
    scheduler: SCHEDULERS.field() = Field(default_factory=dict, validate_default=True)
    frequency: FREQUENCIES.field() = Field(default_factory=dict, validate_default=True)
    budget: BUDGETS.field() = Field(default_factory=dict, validate_default=True)
    clock: Clock = Clock()

    def replica(self, number: int) -> Self:
        """The same cluster with other random draws; replica 0 is the scenario itself."""
        return self.model_copy(update={"seed": self.seed + number, "jobs": self.jobs.replica(number)})

    def trace(self) -> Jobs:
        """Read or generate the jobs. Raises InputError if the trace is invalid or a job does not fit the cluster."""
        jobs = self.jobs.jobs(self.models.catalogue(self.cluster.gpus_per_node), self.seed)
        jobs.check_fit(self.cluster.num_gpus, "jobs")
        return jobs

    def simulator(self) -> Simulator:
        """Build the simulation. Raises InputError as `trace` does, and if tables contradict each other."""
        limit = self.budget.checked_limit()
        if self.clock.round_s == 0 and (self.scheduler.periodic or limit.renewed):
            component = (
                f"scheduler {self.scheduler.kind!r}"
                if self.scheduler.periodic
                else f"budget {self.budget.kind!r}"
            )
            raise InputError("clock.round_s = 0", f"{component} needs rounds", "give their length, e.g. 60")
        self.scheduler.check(self.clock.round_s)
        jobs = self.trace()
        most = max(int(jobs.gpus.max()), min(self.models.most_gpus, self.cluster.num_gpus))
        speeds = Speeds(jobs.profiles, self.gpu, self.cluster.gpus_per_node, most)
        return Simulator(
            jobs,
            speeds,
            self.gpu,
            self.placement.layout(self.cluster, self.seed),
            self.scheduler,
            self.frequency,
            limit,
            self.clock,
            self.placement.max_migrations,
        )
