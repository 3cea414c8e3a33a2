"""What a results file says about its run, besides the rounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.experiment import Input
from hpctrip.base.identity import neutral_keys
from hpctrip.record.environment import environment


@dataclass(frozen=True)
class RankFacts:
    """What rank 0 wants to know of a rank, to say it."""

    host: str
    """Name of its machine."""
    device: str
    engine: str
    """How its sites train, in words."""
    arithmetic: str
    """What decides the last bits there (`learn.arithmetic`)."""
    meter: str = ""
    """What its machine counts of its energy, in words; empty where another rank reads that."""


def attributes(aggregator: Aggregator, given: Input, everyone: list[RankFacts]) -> dict[str, Any]:
    """Attributes of the results file (`record.schema.ATTRIBUTES`) and the two texts of the input."""
    host, world, ranks = aggregator.host, aggregator.world, aggregator.ranks
    experiment = host.experiment
    target = experiment.stop.target_accuracy
    return {
        **environment(ranks.library),
        "input_toml": given.toml,
        "input_json": given.json,
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "target_accuracy": math.nan if target is None else target,
        "data_source": host.task.source,
        "synthetic_data": host.task.synthetic,
        "synthetic_power": world.supply.synthetic,
        "update_bytes": world.update_bytes,
        "compression": experiment.compression.kind,
        "payload_bytes": experiment.compression.checked_payload_bytes(len(host.initial_params)),
        "num_params": len(host.initial_params),
        "neutral_keys": neutral_keys(experiment),
        "policy_keys": given.policy_keys,
        "packages": list(map(str, given.extensions.packages)),
        "num_ranks": ranks.size,
        "transport": ranks.name,
        "engine": host.engine.name,
        "blocks": str(host.block_rule),
        "sites_per_block": host.sites_per_block(host.num_sites),
        "hosts": [rank.host for rank in everyone],
        "devices": [rank.device for rank in everyone],
        "meters": [f"{rank.host}: {rank.meter}" for rank in everyone if rank.meter],
    }


def site_columns(aggregator: Aggregator) -> dict[str, tuple[np.ndarray, str, str]]:
    """The table of sites: {column: (values [N], unit, description)}."""
    host, world = aggregator.host, aggregator.world
    columns = {
        "site": (np.arange(len(world)), "1", "site index"),
        "distance_m": (world.distance_m, "m", "distance to the aggregator d_i"),
        "bandwidth_bps": (world.bandwidth_bps, "bit/s", "WAN bandwidth B_i"),
        "comm_s": (world.comm_s, "s", "communication delay L_i of the site alone (Eq. 3)"),
        "num_samples": (host.num_samples, "samples", "samples of the site's shard"),
        "work_s": (
            world.timing.seconds_per_sample * host.num_visits,
            "s",
            "modelled compute time c_i of one round at full power",
        ),
        "power_fraction": (world.power_fraction(0.0), "1", "power fraction P_i at time 0"),
        "throughput_fraction": (world.throughput_fraction(0.0), "1", "what that power is worth"),
    }
    for name, values in world.supply.describe().items():
        columns[name] = (values, "1", f"{name.replace('_', ' ')} of the site's power trace")
    return columns
