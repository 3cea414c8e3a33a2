"""The experiment: the root of the input file, and the checks and objects that need several of its tables."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Self

import numpy as np
import tomli_w
from pydantic import Field

from hpctrip.base.errors import HpctripError, InputError, cause
from hpctrip.base.io import PathName, beside
from hpctrip.config.component import Component, is_own
from hpctrip.config.identity import Added, NotInResult, NotInTraining, flat
from hpctrip.config.inputs import Tables, dropped, folder_of, merge, read_layers, resolved, validate
from hpctrip.config.plugins import NO_EXTENSIONS, Extensions, code_name, with_code_paths
from hpctrip.config.sources import missing_files, seen_from_here
from hpctrip.device.meter import Metering
from hpctrip.device.settings import GpuSettings
from hpctrip.learn.compression import COMPRESSIONS
from hpctrip.learn.engines import EngineChoice
from hpctrip.learn.evaluate import Evaluate
from hpctrip.learn.local_work import LocalWork
from hpctrip.learn.overlap import Overlap
from hpctrip.learn.partition import PARTITIONS
from hpctrip.learn.server import SERVERS
from hpctrip.learn.workloads import WORKLOADS
from hpctrip.ranks.transport import RanksInput
from hpctrip.ranks.watchdog.watchdog import Limits
from hpctrip.record.checkpoint import Checkpointing
from hpctrip.runner.cache.writer import CacheInput
from hpctrip.runner.callbacks import CALLBACKS
from hpctrip.runner.signals import Interrupt
from hpctrip.sim.arrivals import ROUNDS
from hpctrip.sim.availability import AVAILABILITY
from hpctrip.sim.energy import Accounts
from hpctrip.sim.faults import Faults
from hpctrip.sim.forecast import FORECASTS
from hpctrip.sim.grid import SIGNALS
from hpctrip.sim.hardware import THROUGHPUT_MODELS
from hpctrip.sim.network import NETWORKS
from hpctrip.sim.network.matrix import MatrixNetwork
from hpctrip.sim.policies import POLICIES
from hpctrip.sim.power import POWER_MODELS
from hpctrip.sim.profiler import Profiler
from hpctrip.sim.sites import SITES
from hpctrip.sim.step import Simulation
from hpctrip.sim.stop import Stop
from hpctrip.sim.timing import Timing
from hpctrip.sim.world import World, signal_models

import_module("hpctrip.cluster.site_power")  # registers a power model; by name, as it is of a higher layer


class Experiment(Component):
    """One run: the whole input file."""

    name: NotInResult[str] = Field("powertrip", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the scenario and, by default, of the results file."""
    label: NotInResult[str | None] = None
    """Name of the run in figures; absent: its policy."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed from which all random streams derive."""
    plugins: NotInResult[list[PathName]] = []
    """Python files that add your own policies, power models or workloads. Paths in an input file are relative to that
    file. A run records and compares their content."""
    sites: NotInTraining[SITES.field()] = Field(default_factory=dict, validate_default=True)
    """Number and positions of the sites."""
    network: NotInTraining[NETWORKS.field()] = Field(default_factory=dict, validate_default=True)
    """The links between the sites and the aggregator."""
    power: NotInTraining[POWER_MODELS.field()] = Field(default_factory=dict, validate_default=True)
    """The power fraction of every site over time."""
    throughput: NotInTraining[THROUGHPUT_MODELS.field()] = Field(default_factory=dict, validate_default=True)
    """The hardware of a site: its training speed for a given power, and its power draw."""
    carbon: NotInTraining[SIGNALS.field()] = Field(default_factory=dict, validate_default=True)
    """Grams of CO2 for a kilowatt-hour at every site over time."""
    price: NotInTraining[SIGNALS.field()] = Field(default_factory=dict, validate_default=True)
    """Money for a kilowatt-hour at every site over time."""
    accounts: NotInTraining[Accounts] = Accounts()
    rounds: NotInTraining[Added[ROUNDS.field()]] = Field(default_factory=dict, validate_default=True)
    """The kind of rounds: which sites start, which updates are averaged, and when a round ends."""
    timing: NotInTraining[Timing] = Timing()
    faults: NotInTraining[Faults] = Faults()
    availability: NotInTraining[Added[AVAILABILITY.named_fields()]] = {}
    """When sites may train, and how long they wait until they start, by names of your choice:
    `[availability.maintenance]`. What several of them leave combines."""
    profiler: NotInTraining[Profiler] = Profiler()
    forecast: NotInTraining[FORECASTS.field()] = Field(default_factory=dict, validate_default=True)
    """Forecast of the sites' power over the coming round, for the profiler."""
    policy: NotInTraining[POLICIES.field()] = Field(default_factory=dict, validate_default=True)
    """The policy that selects the sites of a round."""
    workload: WORKLOADS.field() = Field(default_factory=dict, validate_default=True)
    """The data and the model."""
    partition: PARTITIONS.field() = Field(default_factory=dict, validate_default=True)
    """Partition of the training samples among the sites."""
    train: LocalWork = LocalWork()
    server: SERVERS.field() = Field(default_factory=dict, validate_default=True)
    """The aggregator's optimiser, which applies the averaged update to the global model."""
    compression: COMPRESSIONS.field() = Field(default_factory=dict, validate_default=True)
    """Compression of the updates on their way to the aggregator."""
    overlap: Added[Overlap] = Overlap()
    engine: EngineChoice = EngineChoice()
    ranks: RanksInput = RanksInput()
    evaluate: Evaluate = Evaluate()
    stop: NotInTraining[Stop] = Stop()
    checkpoint: NotInResult[Checkpointing] = Checkpointing()
    interrupt: NotInResult[Interrupt] = Interrupt()
    watchdog: NotInResult[Limits] = Limits()
    meter: NotInResult[Metering] = Metering()
    knobs: NotInResult[GpuSettings] = GpuSettings()
    callbacks: NotInResult[CALLBACKS.named_fields()] = {}
    """Called after every round, by names of your choice: `[callbacks.tensorboard]`."""
    store: NotInResult[CacheInput] = CacheInput()

    def resolve(self) -> Self:
        """A copy in which absent keys have the values that follow from the others, `train` included."""
        experiment = super().resolve()
        return experiment.model_copy(update={"train": experiment.workload.local_work(experiment.train)})

    @property
    def rules(self) -> int:  # type: ignore[override]
        """2: return times count the aggregator's link, oort asks nobody who would be late, whole GPUs are those of each
        site, and the state of a site whose update the sum refuses stays as it was."""
        by_return = ("fedcs", "fedzero", "first-back", "goodput", "oort", "power-of-choice", "tifl")
        keeps_state = self.compression.keeps_residual or self.train.keep_optimizer
        changed = (
            (self.network.aggregator_bandwidth_bps is not None and self.policy.kind in by_return)
            or (self.policy.kind == "oort" and self.faults.deadline_s is not None)
            or (self.throughput.whole_gpus and "num_gpus" in self.sites.columns())
            or (self.server.on_diverged == "drop" and keeps_state)
        )
        return 1 + changed

    @property
    def deadline_s(self) -> float:
        """Simulated time by which the target accuracy is wanted (`stop.deadline_s`, or else the policy's objective has
        it); NaN: there is no deadline."""
        return next(iter(self.stop.deadlines_s(self.policy).values()), math.nan)

    def checked_num_sites(self) -> int:
        """N. Raises InputError where the policy, the faults or the budgets cannot work with this input."""
        num_sites = len(self.sites.checked_distances_m(self.seed))
        self.policy.check(num_sites)
        self.faults.check(self.timing)
        self.rounds.check(self.timing, self.faults)
        self.train.check_rounds(self.rounds)
        self.overlap.check(self, num_sites)
        self.network.check(self.rounds.leaves_flights, self.faults)
        for name in self.availability:
            self.timing.check_own_times(f"[availability.{name}]", "leave the table out")
        self.accounts.check(signal_models(self), self.stop.budgets, self.sites.columns())
        return num_sites

    def check(self) -> Simulation:
        """Check all that needs no computing. Raises InputError where a table or file cannot be used. Returns a
        simulation with one parameter, and one sample with a label of each of two classes per site, for a trial of its
        rounds: an input that fails there fails with any data."""
        num_sites = self.checked_num_sites()
        self.workload.check_data()
        self.workload.check_model()
        self.workload.check_partition(self.partition, num_sites)
        self.store.check()
        self.check_callbacks()
        labels = np.ones((num_sites, 2), np.int64)
        return self.simulation(1, np.ones(num_sites, np.int64), label_counts=labels)

    def check_callbacks(self) -> None:
        """Raise InputError where the `check` of a callback does, for example because a package is missing, and where
        that of a plug-in fails."""
        for name, callback in self.callbacks.items():
            try:
                if callback.enabled:
                    callback.check()
            except HpctripError:
                raise
            except Exception as error:
                if is_own(type(callback)):
                    raise
                problem = f"fails before the run: {cause(error)}"
                raise InputError(f"callbacks.{name}", problem, "fix it, or set enabled = false") from None

    def check_run(self, results: str) -> None:
        """Raise InputError where the network is a clock only, and where a callback would replace a file that it did not
        write."""
        self.network.check_training()
        for callback in self.callbacks.values():
            if callback.enabled:
                callback.check_outputs(Path(results).resolve())

    def world(self, num_params: int, num_buffers: int = 0) -> World:
        """The simulated world, for a model with `num_params` parameters and `num_buffers` entries of buffers. Raises
        InputError where its files are unusable."""
        sent_fraction = self.compression.sent_fraction(self.overlap.num_sent(num_params), num_buffers)
        world = World.build(self, 4.0 * (num_params + num_buffers), sent_fraction)
        return self.overlap.of(world, num_params, self.train.local_steps)

    def simulation(
        self,
        num_params: int,
        num_samples: np.ndarray,
        num_buffers: int = 0,
        label_counts: np.ndarray | None = None,
    ) -> Simulation:
        """The simulated half of the run, for a model of this size (as in `world`) and sites with shards of these sizes
        [N], and labels [N, classes] where the policy sees them. Raises InputError as `world`, and where
        it has another number of sites."""
        world = self.world(num_params, num_buffers)
        if len(num_samples) != len(world):
            raise InputError("sites", f"the input leads to {len(world)}, there are {len(num_samples)} shards")
        num_visits = self.train.num_visits(num_samples)
        shares = {"samples": num_samples, "uniform": np.ones(len(num_samples)), "processed": num_visits}
        return Simulation(
            world=world,
            profiler=self.profiler,
            policy=self.policy,
            stop=self.stop,
            num_visits=num_visits,
            num_samples=num_samples,
            label_counts=np.zeros((0, 0), np.int64) if label_counts is None else label_counts,
            shares=shares[self.server.weights],
            weighs_work=self.server.weights == "processed",
            seed=self.seed,
            forecast=self.forecast,
            rounds=self.rounds,
        )


@dataclass(frozen=True)
class Input:
    """The merged tables of an input, and the experiment that they describe."""

    tables: Tables
    set_by_policy: Tables
    """{table: {key: value}} by which a policy that replaces the world (centralized) overrides `tables`; {}: it leaves
    the table out."""
    experiment: Experiment
    extensions: Extensions = NO_EXTENSIONS
    """The plug-ins and packages of the user, which have run."""
    warnings: Sequence[str] = ()
    """Lines about keys that a change of kind has dropped, and about those that contradict each other."""

    @classmethod
    def of(cls, tables: Tables, set_by_policy: Tables, extensions: Extensions = NO_EXTENSIONS) -> Input:
        """The input of these tables, overlaid with `set_by_policy`; `extensions` have run already. Raises InputError
        with every fault."""
        layers = [{name: table} for name, table in set_by_policy.items()]
        left = {name: table for name, table in tables.items() if set_by_policy.get(name) != {}}
        return cls(tables, set_by_policy, experiment_of(merge_layers(left, layers)), extensions)

    def with_seed(self, seed: int) -> Input:
        """The same input with another seed. It is validated again only where the policy sets keys, which may depend on
        the seed. Raises InputError."""
        tables = self.tables | {"seed": seed}
        if self.set_by_policy:
            return resolve(tables, self.extensions)
        return replace(self, tables=tables, experiment=self.experiment.model_copy(update={"seed": seed}))

    @property
    def toml(self) -> str:
        """The merged tables as TOML text: a file with this text repeats the run."""
        return tomli_w.dumps(self.tables)

    @property
    def json(self) -> str:
        """The resolved input as JSON: every key with its value, defaults included."""
        return json.dumps(resolved(self.experiment))

    @property
    def policy_keys(self) -> list[str]:
        """The dotted keys that the policy sets; the name of the table where the policy sets its kind."""
        return [
            key
            for name, table in self.set_by_policy.items()
            for key in ([name] if "kind" in table else [f"{name}.{key}" for key in table])
        ]


def read_input(
    paths: Iterable[str] = (), overrides: Iterable[str] = (), plugins: Iterable[str] = ()
) -> Input:
    """Merge and validate an input; without `paths` it is the embedded default scenario. The plug-ins that the input
    names, and those in `plugins`, are run first. Raises InputError with every fault."""
    (*layers, last), extensions = read_user_input(paths, overrides, plugins)
    extensions.run()
    return input_of([*(layers or [demonstration()]), last], extensions)


def demonstration() -> Tables:
    """The embedded default scenario."""
    return tomllib.loads(files("hpctrip.runner").joinpath("default.toml").read_text())


def read_user_input(
    paths: Iterable[str],
    overrides: Iterable[str],
    plugins: Iterable[str],
    root: type[Component] = Experiment,
) -> tuple[list[Tables], Extensions]:
    """Read the input of a command: its layers, and the code that they and `plugins` name, which is not run. `root` is
    the class of the input. Raises InputError, also for a file that is not there."""
    paths = list(paths)
    layers, code = name_plugins(read_seen_layers(paths, overrides, root), plugins)
    merged = flat(merge_layers({}, layers, root))
    faults = [
        fault
        for path, layer in zip(paths, layers, strict=False)
        for key, fault in missing_files(layer, folder_of(path), root)
        if flat(layer)[key] == merged.get(key)  # no later layer has another
    ]
    if faults:
        raise InputError(faults=faults)
    return layers, Extensions.of(code)


def read_seen_layers(
    paths: Iterable[str], overrides: Iterable[str], root: type[Component] = Experiment
) -> list[Tables]:
    """The layers of input files and, last, of `-o` lines. Paths in files become relative to the working directory: of
    code, those from the folder of the file, and of data those that are there. Raises InputError."""
    *files, last = read_layers(paths := list(paths), overrides)
    return [
        *(seen_from(folder_of(path), layer, root) for path, layer in zip(paths, files, strict=True)),
        last,
    ]


def seen_from(folder: str, tables: Tables, root: type[Component] = Experiment) -> Tables:
    """The tables of a file in `folder`, with paths as the working directory sees them."""
    return with_code_paths(seen_from_here(tables, folder, root), partial(beside, folder))


_CODE_PATHS = "its path is relative to the working folder, in an input file to that file"


def name_plugins(layers: Sequence[Tables], plugins: Iterable[str]) -> tuple[list[Tables], list[str]]:
    """The layers of an input, of which the last lists all plug-ins, and the paths of these: those of the last layer
    that lists any, `plugins`, and the files of the keys `file.py:Name`. A file of several paths is listed once.
    Raises InputError where a file of a key is not there."""
    named: object = []
    workload: Tables = {}
    for layer in layers:
        named = layer.get("plugins", named)
        workload |= table if isinstance(table := layer.get("workload"), dict) else {}
    if not isinstance(named, list):
        return list(layers), []
    paths = [path for path in named if isinstance(path, str)]
    files = {os.path.abspath(os.path.expanduser(path)) for path in paths}
    code = {key: found[0] for key, value in workload.items() if (found := code_name(value))}
    for key, path in code.items():
        if not os.path.lexists(os.path.expanduser(path)):
            raise InputError(f"workload.{key} = {workload[key]!r}", f"there is no file {path}", _CODE_PATHS)
    for path in (*plugins, *code.values()):
        if (file := os.path.abspath(os.path.expanduser(path))) not in files:
            files.add(file)
            named, paths = [*named, path], [*paths, path]
    return [*layers[:-1], layers[-1] | ({"plugins": named} if named else {})], paths


def merge_layers(tables: Tables, layers: Iterable[Tables], root: type[Component] = Experiment) -> Tables:
    """Merge layers into tables, from left to right; `root` is the class of the input."""
    for layer in layers:
        tables = merge(tables, layer, root)
    return tables


def input_of(layers: Sequence[Tables], extensions: Extensions = NO_EXTENSIONS) -> Input:
    """The input of merged layers, as `resolve`, with its warnings."""
    found = resolve(tables := merge_layers({}, layers), extensions)
    lost = dropped(layers, tables, e := found.experiment)
    if len({*(both := e.stop.deadlines_s(e.policy)).values()}) > 1:
        keys = " and ".join(f"{key} = {value / 3600:g} h" for key, value in both.items())
        lost.append(f"{keys} differ: the outcome is judged by the first, sites are chosen by the second")
    return replace(found, warnings=lost)


def resolve(tables: Tables, extensions: Extensions = NO_EXTENSIONS) -> Input:
    """The input of merged tables, with the keys that their policy sets; `extensions` have run already. Raises
    InputError with every fault."""
    run_input = Input.of(tables, {}, extensions)
    sites, seed = run_input.experiment.sites, run_input.experiment.seed
    replaced = run_input.experiment.policy.replaces(lambda: len(sites.checked_distances_m(seed)))
    network = run_input.experiment.network
    if "sites" in replaced and isinstance(network, MatrixNetwork):  # the new sites are in no region
        replaced["network"] = {"kind": NETWORKS.default} | replaced.get("network", {})
    return Input.of(tables, replaced, extensions) if replaced else run_input


def experiment_of(tables: Tables) -> Experiment:
    """The resolved experiment of these tables. The plug-ins that they name are not run here."""
    return validate(tables, Experiment).resolve()
