"""The input: TOML files merged left to right, `-o` lines on top, validated once, all faults in one report."""

from __future__ import annotations

import importlib.util
import json
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tomli_w
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from hpctrip.base.component import Component, Registry, registry_of, unknown_name
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import Neutral
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
from hpctrip.sim.throughput import THROUGHPUT_MODELS
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World

Tables = dict[str, Any]


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


class Engine(Component):
    """How a block of sites is trained."""

    name: Literal["auto", "loop", "stacked"] = "auto"
    """loop: one site after another (a CPU's best). stacked: a block at once (GPUs). auto: by device."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """Of matrix products and convolutions in training; anything but float32 changes results, in the third digit or so.
    tf32 is a GPU's and does nothing on a CPU."""
    sites_per_block: int | None = Field(None, ge=1)
    """Sites in one block, the unit of placement; absent: 1 for loop, 32 for stacked. Never depends on the ranks."""


class RanksInput(Component):
    """Where it runs."""

    transport: Neutral[Literal["auto", "serial", "mpi", "nccl"]] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: Neutral[Literal["auto", "cpu", "cuda"]] = "auto"
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


def _none(value: Any) -> Any:
    """TOML has no null."""
    return None if value == "none" else value


class Stop(Component):
    """Which rule ends the run; the first to fire is recorded."""

    target_accuracy: Annotated[float | None, BeforeValidator(_none)] = Field(0.45, gt=0, le=1)
    """Stop at this held-out accuracy: its time is the time-to-accuracy. "none": no target."""
    max_rounds: int = Field(500, ge=1)
    """Stop after so many rounds."""
    max_clock_s: Seconds | None = Field(None, gt=0)
    """Stop after so much simulated time."""
    max_wall_s: Seconds | None = Field(None, gt=0)
    """Stop after so much wall time."""


class Checkpointing(Component):
    """When the state is written beside the results file, to be resumed from; nothing here changes a result."""

    enabled: bool = True
    """Write checkpoints at all."""
    every_s: Seconds = Field(60.0, ge=0)
    """Wall time between two."""
    max_fraction: float = Field(0.005, gt=0, le=1)
    """Writing waits longer than every_s where it would take more than this fraction of the wall time."""
    every_rounds: int | None = Field(None, ge=1)
    """Write after every so many rounds too, whatever it costs."""


class Interrupt(Component):
    """When a run leaves early to be resumed: checkpoint, exit code 85. Nothing here changes a result."""

    signals: list[Literal["SIGUSR1", "SIGUSR2", "SIGTERM", "SIGHUP", "SIGINT"]] = ["SIGUSR2", "SIGTERM"]
    """Signals that mean it, at any rank: the round in progress ends, then the run leaves."""
    margin_rounds: int = Field(3, ge=0)
    """Leave when less than so many rounds' time (and that of two checkpoints) is left of the job, as
    SLURM_JOB_END_TIME or job_s says."""
    job_s: Seconds | None = Field(None, gt=0)
    """Wall time that this job may take, where no Slurm says it."""


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

    name: Neutral[str] = Field("powertrip", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the scenario and the results file."""
    label: Neutral[str | None] = None
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
    checkpoint: Neutral[Checkpointing] = Checkpointing()
    interrupt: Neutral[Interrupt] = Interrupt()
    watchdog: Neutral[WatchdogLimits] = WatchdogLimits()

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


_DEFAULT_KINDS = {
    name: registry.default
    for name, field in Experiment.model_fields.items()
    if (registry := registry_of(field)) is not None
}


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
    paths = list(paths)
    layers = [_read_file(path) for path in paths] or [
        tomllib.loads(files("hpctrip.app").joinpath("default.toml").read_text())
    ]
    tables: Tables = {}
    for layer in [*layers, _read_overrides(overrides)]:
        tables = merge(tables, layer)
    return resolve(tables)


def read_layers(paths: Iterable[str], overrides: Iterable[str]) -> list[Tables]:
    """The tables of every file and of the -o lines, to be merged left to right over others."""
    return [*map(_read_file, paths), _read_overrides(overrides)]


def resolve(tables: Tables) -> Input:
    """What merged tables mean. A policy that is a world of its own (centralized) sets its tables here."""
    experiment = validate(tables)
    replaced = experiment.policy.replaces()
    if replaced:
        effective = tables
        for name, table in replaced.items():
            effective = merge(effective, {name: table})
        experiment = validate(effective)
    return Input(tables, experiment)


def merge(below: Tables, above: Tables) -> Tables:
    """`above` laid over `below`, table by table. A table that changes its `kind` replaces the one below: the keys of
    another kind would not fit it."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            kind = old.get("kind", _DEFAULT_KINDS.get(key))
            merged[key] = merge(old, value) if value.get("kind", kind) == kind else value
        else:
            merged[key] = value
    return merged


def validate(tables: Tables) -> Experiment:
    """The experiment that the tables describe. Plug-ins named there are imported first."""
    plugins = tables.get("plugins", [])
    if isinstance(plugins, list):
        for path in plugins:
            _import_plugin(str(path))
    Experiment.model_rebuild(force=True)  # so that what the plug-ins registered is known
    try:
        return Experiment.model_validate(tables)
    except ValidationError as error:
        raise InputError(faults=_one_per_place(map(_fault, error.errors()))) from None


def resolved(component: Component) -> Tables:
    """Every field of a component as plain values, `kind` included."""
    table: Tables = {"kind": component.kind} if component.kind else {}
    for name in type(component).model_fields:
        value = getattr(component, name)
        table[name] = resolved(value) if isinstance(value, Component) else value
    return table


def _read_file(path: str) -> Tables:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            path, "no such file", "give the path of a TOML input file, e.g. inputs/smoke.toml"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a UTF-8 text"
        raise InputError(path, f"cannot be read ({reason})") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, f"not valid TOML: {error}") from None


def _read_overrides(lines: Iterable[str]) -> Tables:
    """One layer of all `-o key=value` lines. A value that is no TOML is taken as a text: `-o policy.kind=static`."""
    tables: Tables = {}
    for line in lines:
        key, equals, value = line.partition("=")
        try:
            if not equals:
                raise tomllib.TOMLDecodeError("no =")
            try:
                layer = tomllib.loads(line)
            except tomllib.TOMLDecodeError:
                layer = tomllib.loads(f"{key}={json.dumps(value.strip())}")
        except tomllib.TOMLDecodeError:
            raise InputError(f"-o {line}", "not of the form key=value", "e.g. -o policy.k=50") from None
        tables = _deep(tables, layer)
    return tables


def _deep(below: Tables, above: Tables) -> Tables:
    """Plain deep merge: within the -o lines their order does not matter."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = _deep(below[key], above[key])
    return both


def _import_plugin(path: str) -> None:
    place = f"plugins: {path!r}"
    if not Path(path).is_file():
        raise InputError(place, "no such file", "give the path of a Python file")
    spec = importlib.util.spec_from_file_location(f"hpctrip_plugin_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(place, "not a Python file", "its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = (
        module  # where pydantic looks up annotations and docstrings of the file's classes
    )
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(place, f"fails when imported: {type(error).__name__}: {error}") from None


def _one_per_place(faults: Iterable[Fault]) -> list[Fault]:
    """pydantic reports a value that fits no member of a union once for every member."""
    places: dict[str, Fault] = {}
    for fault in faults:
        first = places.get(fault.place)
        places[fault.place] = (
            replace(first, problem=f"{first.problem}, or {fault.problem}") if first else fault
        )
    return list(places.values())


def _fault(detail: Any) -> Fault:
    """One pydantic error as place, problem and way out."""
    path, owner = _locate(detail["loc"])
    place, value = ".".join(path), detail.get("input")
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Fault(place, "unknown key", unknown_name(path[-1], known_keys(owner)))
    if kind == "union_tag_invalid":
        assert isinstance(owner, Registry)
        tag = detail["ctx"]["tag"]
        return Fault(f"{place}.kind = {tag!r}", f"unknown {owner.sort}", unknown_name(tag, owner))
    if kind in ("union_tag_not_found", "model_type"):
        return Fault(
            f"{place} = {value!r}",
            "must be a table",
            f'e.g. [{place}] on a line of its own, then "key = value" lines',
        )
    problem = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    if isinstance(value, dict):
        return Fault(place, problem)
    return Fault(f"{place} = {value!r}", problem)


def _locate(loc: tuple[int | str, ...]) -> tuple[list[str], Any]:
    """The dotted path that a user wrote (pydantic adds the union's tag), and the class or registry reached last."""
    owner: Any = Experiment
    path: list[str] = []
    parts = list(loc)
    while parts:
        part = parts.pop(0)
        if isinstance(owner, Registry):  # this part is the tag
            owner = owner[str(part)]
            continue
        if isinstance(owner, type) and issubclass(owner, Component) and part in owner.model_fields:
            field = owner.model_fields[str(part)]
            path.append(str(part))
            owner = registry_of(field) or field.annotation
            continue
        if isinstance(owner, type) and issubclass(owner, Component):
            path.append(str(part))
            break
        if isinstance(part, int):  # an element of a list; anything else is pydantic's name for a union member
            path.append(str(part))
    return path, owner


def known_keys(owner: Any) -> list[str]:
    """The input keys of a component class."""
    keys = list(owner.model_fields)
    return ["kind", *keys] if owner.kind and "kind" not in keys else keys
