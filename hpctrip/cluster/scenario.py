"""Scenario of a simulated cluster: the root of its input file."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Self

from pydantic import Field

from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.cluster.allocator import Allocator
from hpctrip.cluster.budgets import BUDGETS, Budget
from hpctrip.cluster.frequencies import FREQUENCIES
from hpctrip.cluster.models import Catalogue, Models, Speeds
from hpctrip.cluster.placement import PLACEMENTS, Machine
from hpctrip.cluster.schedulers import SCHEDULERS
from hpctrip.cluster.simulator import Clock, Simulator
from hpctrip.cluster.state import JobState
from hpctrip.cluster.traces import TRACES, Jobs
from hpctrip.config.component import Component, config_key
from hpctrip.config.identity import NotInResult
from hpctrip.sim.calendar import shared
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.grid.signals import SiteSignal, unusual
from hpctrip.sim.hardware.gpu_power import GPUS
from hpctrip.sim.sites import SitePlacement
from hpctrip.sim.times import moment_us, utc

_logger = logging.getLogger(__name__)


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
    carbon: SIGNALS.field() = Field(default_factory=dict, validate_default=True)
    """Grams of CO2 for a kilowatt-hour of the cluster over time: of one zone, as the cluster is at one place."""
    clock: Clock = Clock()

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: remaining times are those at lowered clocks; leases, slices and shares are divided exactly."""
        kind, num_gpus = self.scheduler.kind, self.cluster.num_gpus
        blind = ("fifo", "tiresias", "gandiva", "powerflow", "elasticflow-like", "pollux-greedy")
        lowers = self.frequency.kind != "highest" or self.budget.kind != "none"
        divides = kind in ("themis", "gandiva") and (self.clock.round_s % 1 or num_gpus & (num_gpus - 1))
        return 2 if (lowers and kind not in blind) or divides else 1

    def replica(self, number: int) -> Self:
        """The same cluster with other random draws; replica 0 is the scenario itself."""
        return self.model_copy(update={"seed": self.seed + number, "jobs": self.jobs.replica(number)})

    def _budget_of(self, jobs: Jobs) -> Budget:
        """The budget whose file begins with the jobs, or else with carbon."""
        if self.jobs.clock != "none":
            return self.budget.begun_with(jobs.start_s, self.jobs.clock == "dates")
        named = getattr(self.carbon, "start", None)
        return self.budget.begun_with(named and moment_us(named) / 1e6, True)

    def start(self, simulator: Simulator) -> list[str]:
        """The times at which simulated time begins in the jobs' trace, the file of the budget and dated carbon, as
        texts."""
        jobs = simulator.jobs
        dates = simulator.carbon.grid.calendar if isinstance(simulator.carbon, SiteSignal) else None
        of_jobs = {
            "seconds": f"{jobs.start_s:.12g} s",
            "dates": f"{utc(int(jobs.start_s * 1e6))} UTC",
            "none": "",
        }
        starts = {
            "jobs": of_jobs[self.jobs.clock],
            "budget": self._budget_of(jobs).start(),
            "carbon": f"{utc(dates.begin_us)} UTC" if dates else "",
        }
        return [f"{table} {text}" for table, text in starts.items() if text]

    def simulator(self) -> Simulator:
        """Build the simulation. Raises InputError if the trace is invalid, if a job does not fit the cluster, and if
        tables contradict each other."""
        jobs = self.jobs.jobs(Catalogue(self.models, self.cluster.gpus_per_node), self.seed)
        carbon = self.carbon_signal(jobs)
        limit = self._budget_of(jobs).checked_limit(carbon)
        if self.clock.round_s == 0 and (self.scheduler.periodic or limit.renewed):
            periodic = self.scheduler if self.scheduler.periodic else self.budget
            table = "scheduler" if self.scheduler.periodic else "budget"
            problem = f"{table} {periodic.kind!r} needs rounds"
            raise InputError("clock.round_s = 0", problem, "give their length, e.g. 60")
        self.scheduler.check(self.clock.round_s)
        jobs.check_fit(self.cluster.num_gpus)
        most = max(int(jobs.gpus.max()), min(self.models.most_gpus, self.cluster.num_gpus))
        speeds = Speeds(jobs.profiles, self.gpu, self.cluster.gpus_per_node, most)
        allocator = Allocator(
            JobState(jobs, speeds),
            self.placement.layout(self.cluster, self.seed),
            self.gpu,
            self.clock.restart_s,
            self.placement.max_migrations,
        )
        carbon = carbon or limit.intensity
        return Simulator(allocator, self.gpu, self.scheduler, self.frequency, limit, carbon, self.clock)

    def carbon_signal(self, jobs: Jobs) -> SiteSignal | None:
        """The carbon intensity of the cluster's power; None: not known. Begins with the first job, or else with the
        file of the budget, where both have dates and carbon.start names no other moment. Raises InputError if it is not
        of one zone."""
        if getattr(self.carbon, "site_column", None) is not None:
            problem = "names a column of sites: a cluster is one site"
            raise InputError(f"carbon.site_column = {self.carbon.site_column!r}", problem, "leave it out")
        signal = self.carbon.checked_signal("carbon", SitePlacement(), 1, self.seed)
        if len(signal.names) > 1:
            zones = f"{', '.join(signal.names[:3])}{', ...' if len(signal.names) > 3 else ''}"
            problem = f"has {len(signal.names)} zones, {zones}: a cluster is in one"
            hint = "set carbon.spread = false" if self.carbon.kind == "daily" else "give the data of one"
            raise InputError(config_key("carbon", self.carbon), problem, hint)
        dates = signal.calendar
        if dates is not None and dates.start_us is None:
            with_jobs = self.jobs.clock == "dates"
            begin_us = (
                int(jobs.start_s * 1e6) if with_jobs else getattr(self._budget_of(jobs), "date_us", None)
            )
            signal = signal.on(shared({"carbon": replace(dates, start_us=begin_us)})["carbon"])
        for line in unusual("carbon", signal):
            _logger.warning("%s", line)
        return SiteSignal(signal) if signal.is_known else None
