"""Run metadata stored as attributes of the results file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from hpctrip.config.identity import neutral_keys
from hpctrip.config.sources import Source
from hpctrip.device.settings import Applied
from hpctrip.learn.params import arithmetic, layout, tied
from hpctrip.ranks.base import hostname
from hpctrip.record.environment import environment
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Input
from hpctrip.runner.host import Host
from hpctrip.sim.rounds import History


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
        "neutral_keys": neutral_keys(experiment),
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


def site_columns(aggregator: Aggregator) -> dict[str, tuple[np.ndarray, str, str]]:
    """The table /sites of the results file: {column: (values [N], unit, description)}."""
    host, world = aggregator.host, aggregator.world
    columns = {
        "site": (np.arange(len(world)), "1", "site index"),
        "distance_m": (world.distance_m, "m", "distance to the aggregator d_i"),
        "bandwidth_bps": (world.links.bandwidth_bps, "bit/s", "WAN bandwidth B_i"),
        "comm_s": (world.transfers(0.0).alone_s, "s", "communication delay L_i of the site alone (Eq. 3)"),
        "num_samples": (host.num_samples, "samples", "samples of the site's shard"),
        "work_s": (
            world.hardware.work_s(host.num_visits, world.timing.seconds_per_sample),
            "s",
            "modelled compute time c_i of one round at full power",
        ),
        "power_fraction": (world.power_fraction(0.0), "1", "power fraction P_i at time 0"),
        "throughput_fraction": (world.throughput_fraction(0.0), "1", "relative training speed at that power"),
    }
    for label, counts in enumerate(aggregator.simulation.label_counts.T):
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


def device_name(device: torch.device) -> str:
    """Name of a device in results files: that of the GPU, or "cpu"."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def machine_notes(everyone: Sequence[RankFacts]) -> list[str]:
    """Lines for the user about the machines, printed before the first round."""
    hint = "`hpctrip gpu-settings --restore` there puts it back"
    return [
        *(f"{rank.host}: warning: {line}; {hint}" for rank in everyone for line in rank.left),
        *(f"{rank.host}: set {line}" for rank in everyone for line in rank.knobs.made),
        *(f"warning: {rank.host}: not set: {line}" for rank in everyone for line in rank.knobs.refused),
    ]
