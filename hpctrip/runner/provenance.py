"""Provenance of a run: records its input, the files that it reads, its machines and versions, and the key of its
training, and compares them when the run is resumed, retimed or verified."""

from __future__ import annotations

import functools
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import hpctrip
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.io import digest as digest_of_bytes
from hpctrip.config.identity import (
    Flat,
    differing,
    flat,
    identity,
    keys_not_in_training,
    neutral_keys,
    uncompared_keys,
    without,
)
from hpctrip.config.inputs import Tables, resolved
from hpctrip.config.plugins import Extensions, Plugin, without_folders
from hpctrip.config.sources import MADE_HERE, PLUGINS, NamedFiles, Source, named_files, read_sources
from hpctrip.device.settings import Applied
from hpctrip.learn.task import Task
from hpctrip.ranks.base import device_name, hostname
from hpctrip.record.writer import environment
from hpctrip.runner.experiment import Experiment, Input, experiment_of, input_of, resolve
from hpctrip.sim.rounds import History
from hpctrip.sim.step import Simulation

if TYPE_CHECKING:  # with torch, which studies and `verify` do not need
    from hpctrip.runner.aggregator import Aggregator
    from hpctrip.runner.host import Host

WORKLOAD = "workload."
"""Prefix of the input keys that name training data."""
MAY_DIFFER = ("stop",)
"""Tables that may differ in a resumed run, besides the keys that change no result: the stop rules."""
CODE = (
    "learn",
    "base/rng.py",
    "ranks/placement.py",
    "runner/aggregator.py",
    "runner/host.py",
    "runner/loop.py",
)
"""The files and folders of hpctrip that training consists of."""


def world_files(experiment: Experiment) -> list[NamedFiles]:
    """The files of the simulated world that an experiment names."""
    return [file for file in named_files(experiment) if not file.key.startswith(WORKLOAD)]


def files_of_input(run_input: Input) -> list[NamedFiles]:
    """All files that an input names, its training data last, with those of sites that the policy replaces: it has read
    their number before."""
    experiment, replaced = run_input.experiment, "sites" in run_input.set_by_policy
    return [
        *world_files(experiment),
        *(named_files(experiment_of(run_input.tables).sites, "sites.") if replaced else []),
        *named_files(experiment.workload, WORKLOAD),
    ]


def world_sources(run_input: Input) -> list[Source]:
    """The files of the simulated world, with digests. Raises InputError where one cannot be read."""
    return [file.source() for file in files_of_input(run_input) if not file.key.startswith(WORKLOAD)]


def sources_of(run_input: Input, task: Task) -> list[Source]:
    """All sources of a run: plug-ins, files of the world, and training data, whose digests are those that the task
    computed, else those of the files of a key. Raises InputError where a file cannot be read."""
    named = {file.key: file for file in named_files(run_input.experiment.workload, WORKLOAD)}
    digests = {WORKLOAD + key: digest for key, digest in task.digests.items()}
    return [
        *(plugin.source for plugin in run_input.extensions.plugins),
        *world_sources(run_input),
        *(
            Source(key, named[key].value if key in named else MADE_HERE, digest)
            for key, digest in digests.items()
        ),
        *(file.source() for key, file in named.items() if key not in digests),
    ]


def learned_tables(experiment: Experiment) -> Flat:
    """The keys that training sees. Data count by their content, which the input does not hold: the keys that name them
    are left out."""
    named = [file.key for file in named_files(experiment.workload, WORKLOAD)]
    return without_folders(without(flat(resolved(experiment)), [*keys_not_in_training(experiment), *named]))


def learning_key(run_input: Input, host: Host, sources: Iterable[Source], arithmetic: Iterable[str]) -> str:
    """32 hexadecimal digits of all that training depends on before the first cohort: the input as far as training sees
    it, data and plug-ins by their digests, the shards and the first model as they came out, the engine that was chosen,
    hpctrip's own code, and what decides the last bits at the ranks (`learn.params.arithmetic`)."""
    from hpctrip.learn.params import digest  # heavy: torch

    shards = host.shards.bounds, host.shards.samples
    return identity(
        {
            **learned_tables(run_input.experiment),
            "engine": [host.engine.name, str(host.block_rule)],
            "data": sorted([s.key, s.digest] for s in sources if s.key.startswith(WORKLOAD)),
            "plugins": sorted(s.digest for s in sources if s.key == PLUGINS),
            "packages": sorted(map(str, run_input.extensions.packages)),
            "shards": digest_of_bytes(b"".join(array.astype("<i8").tobytes() for array in shards)),
            "model": [len(host.initial_params), digest(host.initial_params), host.constants_digest],
            "slots": len(host.slots),
            "code": code_digest(),
            "arithmetic": sorted(set(arithmetic)),
        }
    )


@functools.cache
def code_digest(package: Path = Path(hpctrip.__file__).parent) -> str:
    """Digest of the code that trains and of hpctrip's version.

    Raises FileNotFoundError where a path in `CODE` does not exist: the digest would no longer change with the code, and
    rounds that other code trained would be taken from the cache.
    """
    content = hashlib.blake2b(hpctrip.__version__.encode(), digest_size=16)
    for name in CODE:
        path = package / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not files:
            raise FileNotFoundError(f"{path} holds no Python files")
        for file in files:
            content.update(f"\n{file.relative_to(package)}\n".encode())
            content.update(file.read_bytes())
    return content.hexdigest()


def plugin_mismatch(sources: Iterable[Source], plugins: Sequence[Plugin]) -> str:
    """Error text where the user's `plugins` differ from those among the `sources` of a run; empty where they are equal.

    Plug-ins are compared by the digests of their contents, not by their paths.
    """
    recorded, now = [s for s in sources if s.key == PLUGINS], [plugin.source for plugin in plugins]
    made_with, present = (
        ", ".join(f"{source.path!r} (digest {source.digest})" for source in each) for each in (recorded, now)
    )
    if recorded and not plugins:
        return f"the run was made with plug-ins, which are code and never run because a file names them: {made_with}"
    if {source.digest for source in recorded} == {source.digest for source in now}:
        return ""
    return f"the run was made with {made_with or 'no plug-in'}, given {'is' if len(now) == 1 else 'are'} {present}"


@dataclass(frozen=True)
class RecordedInput:
    """The input that a results file or checkpoint records, and the sources that its run read."""

    place: str
    """Path of the file, for messages."""
    tables: Tables
    """The merged input."""
    sources: tuple[Source, ...]

    @classmethod
    def of(cls, place: object, input_toml: str, metadata: Mapping[str, Any]) -> RecordedInput:
        """The input that the file at `place` records, from its text and its attributes or metadata."""
        return cls(str(place), tomllib.loads(input_toml), tuple(read_sources(metadata.get("sources", []))))

    def overlaid(self, layers: Sequence[Tables], extensions: Extensions) -> Input:
        """The recorded input, overlaid with the user's `layers`.

        A plug-in is never run because a file names it: the user names it again, and this method runs the code in
        `extensions`. Raises InputError where these plug-ins are not those of the run, and for bad input.
        """
        self.refuse_other_plugins(extensions)
        extensions.run()
        self.experiment()
        tables = {name: table for name, table in self.tables.items() if name != PLUGINS}
        return input_of([tables, *layers], extensions)

    def experiment(self) -> Experiment:
        """The recorded input. Raises InputError where another hpctrip wrote it, and this one does not read it."""
        try:
            return resolve(self.tables).experiment
        except InputError as error:
            problem = f"is of another hpctrip: {hpctrip.__version__} does not read {error.faults[0]}"
            hint = "go on with the hpctrip that `show` names, or make the run anew"
            raise InputError(self.place, problem, hint) from None

    def refuse_other_plugins(self, extensions: Extensions) -> None:
        """Raise InputError where the user's plug-ins are not those of the run."""
        if problem := plugin_mismatch(self.sources, extensions.plugins):
            raise InputError(self.place, problem, "give the same again, e.g. --plugin PATH")

    def refuse_other_input(self, run_input: Input) -> None:
        """Raise InputError where plug-ins differ, and for every key that differs although it changes the results."""
        self.refuse_other_plugins(run_input.extensions)
        may_differ = [*neutral_keys(run_input.experiment), *MAY_DIFFER]

        def compared(experiment: Experiment) -> Flat:
            return without_folders(without(flat(resolved(experiment)), may_differ))

        self._refuse_differing(run_input, compared, "only stop rules may change")

    def refuse_other_learning(self, run_input: Input) -> None:
        """Raise InputError for every input key that differs and on which training depends."""
        hint = "training sees it, so other rounds would have to be trained: use `run`"
        self._refuse_differing(run_input, learned_tables, hint)

    def _refuse_differing(self, run_input: Input, compared: Callable[[Experiment], Flat], hint: str) -> None:
        before, after = compared(self.experiment()), compared(run_input.experiment)
        faults = [
            Fault(key, f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {self.place}", hint)
            for key in differing([before, after])
        ]
        if faults:
            raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)


@dataclass(frozen=True)
class RankFacts:
    """Facts about one rank and its machine, gathered at rank 0."""

    host: str
    """Name of its machine."""
    device: str
    engine: str
    """Description of the training engine."""
    arithmetic: str
    """Hardware and libraries that determine the last bits of results (`learn.params.arithmetic`)."""
    meter: str = ""
    """Description of the energy counters that the rank reads; empty where another rank of its machine does."""
    knobs: Applied = Applied()
    """Applied and refused GPU settings of its machine."""
    left: tuple[str, ...] = ()
    """GPU settings that killed runs have left on its machine."""

    @classmethod
    def of(cls, host: Host, knobs: Applied, left: Iterable[str]) -> RankFacts:
        """The facts of this rank."""
        from hpctrip.learn.params import arithmetic  # heavy: torch

        device = host.device
        return cls(
            hostname(),
            device_name(device),
            host.engine.description,
            arithmetic(device),
            host.meter.description,
            knobs,
            tuple(left),
        )


def metadata_of(
    aggregator: Aggregator,
    run_input: Input,
    everyone: Sequence[RankFacts],
    sources: Iterable[Source],
    history: History,
    before: Mapping[str, Any],
    learning_key: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of the results file (`record.schema.ATTRIBUTES`), with the input as TOML and as JSON, and the
    metadata of the checkpoints, for a run that starts after `history`. `before` is the metadata of the checkpoint from
    which it goes on; empty where there is none."""
    from hpctrip.learn.params import layout, tied  # heavy: torch

    now, ranks = datetime.now(UTC).isoformat(timespec="seconds"), aggregator.ranks
    nodes = ", ".join(dict.fromkeys(rank.host for rank in everyone))
    devices = sorted({rank.device for rank in everyone[ranks.hosts.start :]})
    job = f", Slurm job {os.environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in os.environ else ""
    start = f"after round {len(history)}: {now}, {ranks.size} rank(s) on {nodes}{job}"
    continued = {
        "created_utc": before.get("created_utc", now),
        "starts": [*before.get("starts", []), start],
        "sources": list(map(str, sources)),
        # the key of all rounds: there is none where the first ones were trained under another key
        "learning_key": learning_key if not before or before.get("learning_key") == learning_key else "",
    }
    attributes = {
        **_attributes(aggregator, run_input, everyone),
        **continued,
        "stored_rounds": sum(row.wall_s == 0 for row in history.rows),
    }
    versions = ("engine", "hpctrip_version", "torch_version", "numpy_version")
    made_with = {
        **{name: str(attributes[name]) for name in versions},
        "devices": ", ".join(devices),
        "packages": ", ".join(attributes["packages"]) or "none",
    }
    host = aggregator.host
    model = {"parameters": layout(host.model), "tied": tied(host.model), "constants": host.constants_digest}
    return attributes, {**continued, **model, "made_with": made_with}


def _attributes(aggregator: Aggregator, run_input: Input, everyone: Sequence[RankFacts]) -> dict[str, Any]:
    host, world, ranks = aggregator.host, aggregator.world, aggregator.ranks
    experiment = host.experiment
    return {
        **environment(ranks.library),
        "input_toml": run_input.toml,
        "input_json": run_input.json,
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "target_accuracy": experiment.stop.target,
        "data_source": host.task.source,
        "synthetic_data": host.task.synthetic,
        "synthetic_power": world.supply.synthetic,
        "synthetic_signals": world.synthetic_signals,
        "simulated_start": world.start,
        "update_bytes": world.update_bytes,
        "compression": experiment.compression.kind,
        "payload_bytes": float(experiment.compression.payload_bytes(host.num_params))
        + 4.0 * host.num_buffers,
        "num_params": host.num_params,
        "num_buffers": host.num_buffers,
        "neutral_keys": uncompared_keys(experiment),
        "policy_keys": run_input.policy_keys,
        "packages": list(map(str, run_input.extensions.packages)),
        "num_ranks": ranks.size,
        "transport": ranks.name,
        "engine": host.engine.name,
        "blocks": str(host.block_rule),
        "sites_per_block": host.sites_per_block(host.num_sites),
        "hosts": [rank.host for rank in everyone],
        "devices": [rank.device for rank in everyone],
        "knobs": [f"{rank.host}: {line}" for rank in everyone for line in rank.knobs.made],
        "refused_knobs": [f"{rank.host}: {line}" for rank in everyone for line in rank.knobs.refused],
        "meters": [f"{rank.host}: {rank.meter}" for rank in everyone if rank.meter],
    }


def changed_versions(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """A warning for each version and device that differs between the metadata of two checkpoints."""
    old, new = before.get("made_with", {}), now["made_with"]
    for name in old.keys() & new.keys():
        if old[name] != new[name]:
            yield f"warning: {name} was {old[name]}, is {new[name]}: the last bits of the numbers may differ"


_UNITS = {"rtt_s": "s", "num_gpus": "GPUs", "latitude": "degrees", "longitude": "degrees"}


def site_columns(simulation: Simulation) -> dict[str, tuple[np.ndarray, str, str]]:
    """The table /sites of the results file: {column: (values [N], unit, description)}."""
    world = simulation.world
    columns = {
        "site": (np.arange(len(world)), "1", "site index"),
        "distance_m": (world.distance_m, "m", "distance to the aggregator d_i"),
        "bandwidth_bps": (world.links.bandwidth_bps, "bit/s", "WAN bandwidth B_i"),
        "comm_s": (world.transfers(0.0).alone_s, "s", "communication delay L_i of the site alone (Eq. 3)"),
        "num_samples": (simulation.num_samples, "samples", "samples of the site's shard"),
        "work_s": (
            world.hardware.work_s(simulation.num_visits, world.timing.seconds_per_sample),
            "s",
            "modelled compute time c_i of one round at full power",
        ),
        "power_fraction": (world.power_fraction(0.0), "1", "power fraction P_i at time 0"),
        "throughput_fraction": (world.throughput_fraction(0.0), "1", "relative training speed at that power"),
    }
    for label, counts in enumerate(simulation.label_counts.T):
        columns[f"label_{label}"] = (counts, "1", f"labels of class {label} in the site's shard")
    for table, signal in world.signals.items():
        if signal.is_known:
            zones = np.array(signal.names)[signal.zone]
            columns[f"{table}_zone"] = (zones, "1", f"zone of the grid whose {table} the site has")
    for name, values in world.site_columns.items():
        columns.setdefault(
            name, (values, _UNITS.get(name, "1"), f"{name.replace('_', ' ')} in the sites' file")
        )
    for name, values in world.supply.describe().items():
        columns[name] = (values, "1", f"{name.replace('_', ' ')} of the site's power trace")
    return columns


def machine_notes(everyone: Sequence[RankFacts]) -> list[str]:
    """Lines for the user about the machines, printed before the first round."""
    hint = "`hpctrip gpu-settings --restore` there puts it back"
    return [
        *(f"{rank.host}: warning: {line}; {hint}" for rank in everyone for line in rank.left),
        *(f"{rank.host}: set {line}" for rank in everyone for line in rank.knobs.made),
        *(f"warning: {rank.host}: not set: {line}" for rank in everyone for line in rank.knobs.refused),
    ]
