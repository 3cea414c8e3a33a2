"""The input: TOML files merged left to right, `-o` lines on top, validated once, all faults in one report."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import tomli_w
from pydantic import Field, ValidationError

from hpctrip.base.component import Component, Registry, registry_of, unknown_name
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.units import Seconds
from hpctrip.learn.aggregate import SERVERS
from hpctrip.learn.partition import PARTITIONS
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.sim.network import Network
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.sites import SITES
from hpctrip.sim.throughput import THROUGHPUT_MODELS
from hpctrip.sim.timing import Timing

Tables = dict[str, Any]


class Train(Component):
    """Local training at a site. What is absent is the workload's own (the paper's Table 2)."""

    lr: float | None = Field(None, gt=0)
    """Learning rate."""
    batch_size: int | None = Field(None, ge=1)
    """Samples in one step."""
    local_epochs: float | None = Field(None, gt=0)
    """Passes over its shard that a site makes in a round; a fraction visits that share of a fresh shuffle."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """SGD momentum, started anew every round."""
    weight_decay: float = Field(0.0, ge=0)
    """L2 penalty."""
    prox_mu: float = Field(0.0, ge=0)
    """FedProx: mu/2 ||w - w_global||^2 is added to the site's loss (Li et al. 2020)."""


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
    """Where it runs; nothing here changes a result."""

    transport: Literal["auto", "serial", "mpi", "nccl"] = "auto"
    """auto: mpi under a launcher, else serial."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: the node's GPUs where there are any."""
    threads: int = Field(1, ge=1)
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


class Stop(Component):
    """Which rule ends the run; the first to fire is recorded."""

    target_accuracy: float | None = Field(0.45, gt=0, le=1)
    """Stop at this held-out accuracy: its time is the time-to-accuracy."""
    max_rounds: int = Field(500, ge=1)
    """Stop after so many rounds."""
    max_clock_s: Seconds | None = Field(None, gt=0)
    """Stop after so much simulated time."""
    max_wall_s: Seconds | None = Field(None, gt=0)
    """Stop after so much wall time."""


class Experiment(Component):
    """One run: the whole input file."""

    name: str = Field("powertrip", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the scenario and the results file."""
    label: str | None = None
    """How figures call this run; absent: its policy."""
    seed: int = Field(0, ge=0)
    """Every random stream derives from it."""
    plugins: list[str] = []
    """Python files to import first: they add policies, power models or workloads of your own."""
    sites: SITES.field() = Field(default_factory=dict, validate_default=True)
    network: Network = Network()
    power: POWER_MODELS.field() = Field(default_factory=dict, validate_default=True)
    throughput: THROUGHPUT_MODELS.field() = Field(default_factory=dict, validate_default=True)
    timing: Timing = Timing()
    profiler: Profiler = Profiler()
    policy: POLICIES.field() = Field(default_factory=dict, validate_default=True)
    workload: WORKLOADS.field() = Field(default_factory=dict, validate_default=True)
    partition: PARTITIONS.field() = Field(default_factory=dict, validate_default=True)
    train: Train = Train()
    server: SERVERS.field() = Field(default_factory=dict, validate_default=True)
    engine: Engine = Engine()
    ranks: RanksInput = RanksInput()
    evaluate: Evaluate = Evaluate()
    stop: Stop = Stop()


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
        if (
            isinstance(value, dict)
            and isinstance(old, dict)
            and value.get("kind", old.get("kind")) == old.get("kind")
        ):
            merged[key] = merge(old, value)
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
        raise InputError(faults=[_fault(detail, tables) for detail in error.errors()]) from None


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
    assert (
        spec is not None and spec.loader is not None
    )  # spec_from_file_location fails on other suffixes only
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(place, f"fails when imported: {type(error).__name__}: {error}") from None


def _fault(detail: Any, tables: Tables) -> Fault:
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
