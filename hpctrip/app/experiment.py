"""One experiment: the root of the input file, and what its tables mean together."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
import tomli_w
from pydantic import BeforeValidator, Field, model_validator

from hpctrip.app.checkpointer import Checkpointing
from hpctrip.app.signals import Interrupt
from hpctrip.base.component import Component
from hpctrip.base.errors import InputError
from hpctrip.base.inputs import Tables, merge, read_layers, resolved, validate
from hpctrip.base.plugins import import_plugin
from hpctrip.base.units import Seconds
from hpctrip.learn.aggregate import SERVERS
from hpctrip.learn.compression import COMPRESSIONS
from hpctrip.learn.engines.base import LocalWork
from hpctrip.learn.partition import PARTITIONS
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.learn.workloads.base import Workload
from hpctrip.sim.faults import Faults
from hpctrip.sim.network import Network
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import Simulation
from hpctrip.sim.stop import Stop
from hpctrip.sim.throughput import THROUGHPUT_MODELS
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World


class Train(Component):
    """Local training at a site. What is absent is the workload's own (the paper's Table 2)."""

    lr: float | None = Field(None, gt=0)
    """Learning rate."""
    batch_size: int | None = Field(None, ge=1)
    """Samples in one step."""
    local_epochs: float | None = Field(None, gt=0, le=1000)
    """Passes over its shard that a site makes in a round; a fraction visits that share of a fresh shuffle."""
    local_steps: int | None = Field(None, ge=1, le=1_000_000)
    """Steps that every site makes in a round, however large its shard, instead of epochs (DiLoCo's H)."""
    optimizer: Literal["sgd", "adamw"] | None = None
    """A site's optimiser, started anew every round."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Of SGD."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of AdamW's first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of AdamW's second moment."""
    eps: float = Field(1e-8, gt=0)
    """Added to the root of AdamW's second moment."""
    weight_decay: float | None = Field(None, ge=0)
    """An L2 penalty in SGD, decoupled from the gradient in AdamW."""
    prox_mu: float = Field(0.0, ge=0)
    """FedProx: mu/2 ||w - w_global||^2 is added to the site's loss (Li et al. 2020)."""

    @model_validator(mode="after")
    def _consistent(self) -> Train:
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                f"local_steps = {self.local_steps} and local_epochs = {self.local_epochs:g}: give one"
            )
        return self

    def local_work(self, workload: Workload, precision: str) -> LocalWork:
        """What a site does in a round of this workload. Raises InputError where options exclude each other."""
        optimizer = self.optimizer or workload.optimizer
        if self.momentum and optimizer != "sgd":
            raise InputError(
                f"train.momentum = {self.momentum:g}",
                f"the optimiser is {optimizer}, which has none",
                'set train.beta1, or train.optimizer = "sgd"',
            )
        decay = workload.weight_decay if self.weight_decay is None else self.weight_decay
        return LocalWork(
            lr=self.lr or workload.lr,
            batch_size=self.batch_size or workload.batch_size,
            optimizer=optimizer,
            momentum=self.momentum,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=decay,
            prox_mu=self.prox_mu,
            precision=precision,
        )

    def num_visits(self, num_samples: np.ndarray, workload: Workload) -> np.ndarray:
        """Samples that each site visits in a round, [N] int64, from those that it holds, [N]."""
        num_samples = np.asarray(num_samples, dtype=np.int64)
        if self.local_steps is not None:
            steps = self.local_steps * (self.batch_size or workload.batch_size)
            return np.where(num_samples > 0, steps, 0)
        return np.ceil(num_samples * (self.local_epochs or workload.local_epochs)).astype(np.int64)


def _renamed(name: Any) -> Any:
    """Inputs up to version 0.1 say "loop"."""
    return "sequential" if name == "loop" else name


class Engine(Component):
    """How a block of sites is trained."""

    name: Annotated[Literal["auto", "sequential", "stacked"], BeforeValidator(_renamed)] = "auto"
    """sequential: one site after another (a CPU's best). stacked: a block at once (GPUs). auto: by device."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Of matrix products and convolutions in training; anything but float32 changes results, in the third digit or so.
    tf32 is a GPU's and does nothing on a CPU."""
    sites_per_block: int | None = Field(None, ge=1)
    """Sites in one block, the unit of placement; absent: 1 for sequential, 32 for stacked, on any number of ranks."""


class RanksInput(Component):
    """Where it runs; nothing here changes a result."""

    transport: Literal["auto", "serial", "mpi", "nccl"] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the node's GPUs where there are any."""
    threads: int = Field(1, ge=1, le=1024)
    """torch threads per rank. Fixed by the input, not by the machine, as kernels may round differently with the number
    of threads; ranks, not threads, are how cores are used (measured: two ranks of one thread beat one of two)."""


class Evaluate(Component):
    """Evaluation of the global model on held-out data."""

    every_rounds: int = Field(1, ge=1)
    """Evaluate after every so many rounds (and after the last one that max_rounds allows)."""
    max_samples: int | None = Field(None, ge=1)
    """Use only the first so many held-out samples."""
    batch_size: int = Field(500, ge=1)
    """Samples per batch; batches have fixed boundaries, so that results do not depend on the ranks."""


class WatchdogLimits(Component):
    """After how long a rank counts as stuck, which ends the job; nothing here changes a result."""

    enabled: bool = True
    """Watch at all."""
    silent_s: Seconds = Field(60.0, ge=1)
    """No sign of life of a rank (stopped, swapped out, its machine gone)."""
    limit_s: Seconds = Field(1800.0, gt=0)
    """A rank is busy with the same phase; the keys below say it of one phase."""
    start_s: Seconds | None = Field(None, gt=0)
    """Preparing data and model."""
    train_s: Seconds | None = Field(None, gt=0)
    """Training one block of sites."""
    exchange_s: Seconds | None = Field(None, gt=0)
    """Applying the summed update."""
    evaluate_s: Seconds | None = Field(None, gt=0)
    """Evaluating a rank's share of the held-out data."""
    record_s: Seconds | None = Field(None, gt=0)
    """Planning a round; writing the results file and a checkpoint."""

    def busy_s(self, phase: str) -> float:
        """The limit of one phase."""
        return getattr(self, f"{phase}_s", None) or self.limit_s


class Experiment(Component):
    """One run: the whole input file."""

    name: str = Field("powertrip", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the scenario and the results file."""
    label: str | None = None
    """How figures call this run; absent: its policy."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Every random stream derives from it."""
    plugins: list[str] = []
    """Python files to import first: they add policies, power models or workloads of your own."""
    sites: SITES.field() = Field(default_factory=dict, validate_default=True)
    network: Network = Network()
    power: POWER_MODELS.field() = Field(default_factory=dict, validate_default=True)
    throughput: THROUGHPUT_MODELS.field() = Field(default_factory=dict, validate_default=True)
    timing: Timing = Timing()
    faults: Faults = Faults()
    profiler: Profiler = Profiler()
    policy: POLICIES.field() = Field(default_factory=dict, validate_default=True)
    workload: WORKLOADS.field() = Field(default_factory=dict, validate_default=True)
    partition: PARTITIONS.field() = Field(default_factory=dict, validate_default=True)
    train: Train = Train()
    server: SERVERS.field() = Field(default_factory=dict, validate_default=True)
    compression: COMPRESSIONS.field() = Field(default_factory=dict, validate_default=True)
    engine: Engine = Engine()
    ranks: RanksInput = RanksInput()
    evaluate: Evaluate = Evaluate()
    stop: Stop = Stop()
    checkpoint: Checkpointing = Checkpointing()
    interrupt: Interrupt = Interrupt()
    watchdog: WatchdogLimits = WatchdogLimits()

    def num_sites(self) -> int:
        """N. Raises InputError where the policy or the faults cannot work with these sites."""
        num_sites = len(self.sites.checked_distances_m(self.seed))
        self.policy.check(num_sites)
        self.faults.check(self.timing)
        return num_sites

    def world(self, num_params: int) -> World:
        """The simulated world, for a model of so many parameters. Raises InputError where its files are unusable."""
        return World.build(
            self.sites,
            self.network,
            self.power,
            self.throughput,
            self.timing,
            4.0 * num_params,
            self.seed,
            self.faults,
            self.compression.sent_fraction(num_params),
        )

    def simulation(self, num_params: int, num_samples: np.ndarray) -> Simulation:
        """The simulated half of the run, for a model of so many parameters and sites with shards of these sizes [N].
        Raises InputError as `world`, and where it has another number of sites."""
        world = self.world(num_params)
        if len(num_samples) != len(world):
            raise InputError("sites", f"the input leads to {len(world)}, there are {len(num_samples)} shards")
        return Simulation(
            world=world,
            profiler=self.profiler,
            policy=self.policy,
            stop=self.stop,
            num_visits=self.train.num_visits(num_samples, self.workload),
            shares=num_samples if self.server.weights == "samples" else np.ones(len(num_samples)),
            seed=self.seed,
        )


@dataclass(frozen=True)
class Input:
    """The merged input as it was given, and what it means."""

    tables: Tables
    experiment: Experiment

    @property
    def toml(self) -> str:
        """The merged tables as TOML text: a file with this text repeats the run."""
        return tomli_w.dumps(self.tables)

    @property
    def json(self) -> str:
        """Every key with the value in force, defaults included."""
        return json.dumps(resolved(self.experiment))


def read_input(paths: Iterable[str] = (), overrides: Iterable[str] = ()) -> Input:
    """Merge, validate and return the input; no path at all means the embedded default scenario.

    Raises InputError with every fault found.
    """
    *layers, last = read_layers(paths, overrides)
    embedded = files("hpctrip.app").joinpath("default.toml").read_text()
    return resolve(laid_over({}, [*(layers or [tomllib.loads(embedded)]), last]))


def laid_over(tables: Tables, layers: Iterable[Tables]) -> Tables:
    """The layers, left to right, laid over the tables."""
    for layer in layers:
        tables = merge(tables, layer, Experiment)
    return tables


def resolve(tables: Tables) -> Input:
    """What merged tables mean. A policy that is a world of its own (centralized) sets its tables here."""
    experiment = experiment_of(tables)
    replaced = experiment.policy.replaces()
    if replaced:
        experiment = experiment_of(laid_over(tables, [{name: table} for name, table in replaced.items()]))
    return Input(tables, experiment)


def experiment_of(tables: Tables) -> Experiment:
    """The experiment that the tables describe as they stand. Plug-ins named there are imported first."""
    plugins = tables.get("plugins", [])
    if isinstance(plugins, list):
        for path in plugins:
            import_plugin(str(path))
    return validate(tables, Experiment)
