"""One simulated cluster: the root of its input file, and what its tables mean together."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.units import Seconds
from hpctrip.cluster.budgets import BUDGETS
from hpctrip.cluster.decisions import Rules
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


class Clock(Component):
    """When the scheduler decides, what a restart costs, and when the simulation ends at the latest."""

    round_s: Seconds = Field(60.0, ge=0, le=1e6)
    """Decisions are made at multiples of this time, 1 s or longer, after a job came or went; 0: at once."""
    restart_s: Seconds = Field(30.0, ge=0, le=1e6)
    """Time without progress after every start of a job on other GPUs, the first too. They draw their full power."""
    sample_s: Seconds = Field(600.0, ge=1, le=1e9)
    """Length of an interval in the results."""
    stop_s: Seconds = Field(1e9, gt=0, le=1e9)
    """The simulation ends at this time, whatever jobs are left."""

    @model_validator(mode="after")
    def _rounds(self) -> Self:
        if 0 < self.round_s < 1:
            raise ValueError(f"round_s = {self.round_s:g} is neither 0 nor 1 s or longer")
        return self


class ClusterScenario(Component):
    """One simulation of a cluster: the whole input file."""

    name: NotInResult[str] = Field("cluster", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the scenario and the results file."""
    label: NotInResult[str | None] = None
    """How figures call this run; absent: its scheduler."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Every random stream derives from it."""
    plugins: NotInResult[list[PathName]] = []
    """Python files to run first: they add schedulers or traces of your own."""
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
        """The same cluster with other random draws; number 0 is itself."""
        return self.model_copy(update={"seed": self.seed + number, "jobs": self.jobs.replica(number)})

    def trace(self) -> Jobs:
        """The jobs. Raises InputError where they are not what they should be, or do not fit the cluster."""
        jobs = self.jobs.jobs(self.models.catalogue(self.cluster.gpus_per_node), self.seed)
        jobs.check_fit(self.cluster.num_gpus, "jobs")
        return jobs

    def simulator(self) -> Simulator:
        """The simulation, ready to run. Raises InputError as `trace`, and where tables contradict each other."""
        limit = self.budget.checked_limit()
        if self.clock.round_s == 0 and (self.scheduler.periodic or limit.renewed):
            needy = (
                f"scheduler {self.scheduler.kind!r}"
                if self.scheduler.periodic
                else f"budget {self.budget.kind!r}"
            )
            raise InputError("clock.round_s = 0", f"{needy} needs rounds", "give their length, e.g. 60")
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
            Rules(self.clock.round_s, self.clock.restart_s, self.clock.sample_s, self.clock.stop_s),
            self.placement.max_migrations,
        )
