"""The plan of a run in numbers; `plan.report` renders it as text."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hpctrip.base.text import size_text
from hpctrip.config.inputs import resolved
from hpctrip.plan import cost
from hpctrip.plan.rounds import PlannedRound
from hpctrip.plan.speed import Speed
from hpctrip.plan.warnings import warnings
from hpctrip.ranks.placement import Traffic
from hpctrip.runner.aggregator import Aggregator

HOST_PARTS = ("model", "sum", "engine", "data", "kept")
"""Parts of `Plan.memory` that every host needs."""


@dataclass(frozen=True)
class Plan:
    """A planned run: its components, its first rounds, and the costs that follow from them."""

    aggregator: Aggregator
    rounds: list[PlannedRound]
    speed: Speed
    bandwidth_bps: float
    """Bandwidth of a rank's link to the others."""
    host_memory_bytes: float
    """Memory of a host; inf: not known."""

    @cached_property
    def wall_s(self) -> np.ndarray:
        """Wall time of every planned round in seconds, [num_rounds]; NaN if the speed is not known."""
        return cost.wall_s(self.aggregator.host, self.rounds, self.speed, self.bandwidth_bps)

    @property
    def max_rounds_wall_s(self) -> float:
        """Wall time of all rounds, assuming that the rounds that are not planned are like the last planned one."""
        rest = max(0, self.aggregator.experiment.stop.max_rounds - len(self.rounds))
        return float(self.wall_s.sum() + rest * self.wall_s[-1])

    @cached_property
    def exchange(self) -> Traffic:
        """Bytes of the last planned round's exchange."""
        return cost.traffic(self.aggregator.host, self.rounds[-1].assignment)

    @cached_property
    def memory(self) -> dict[str, int]:
        """Peak bytes of memory, see `cost.memory_bytes`."""
        return cost.memory_bytes(self.aggregator.host, self.rounds[-1].row.num_sites)

    @cached_property
    def written_bytes(self) -> dict[str, int]:
        """Bytes on disk, see `cost.written_bytes`."""
        return cost.written_bytes(self.aggregator, self.rounds[-1])

    @cached_property
    def process_bytes(self) -> int:
        """Peak resident memory of this process."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @cached_property
    def first_rounds(self) -> list[dict[str, Any]]:
        """Table of the planned rounds, one dict per round."""
        return [
            {
                "round": r.row.round,
                "num_sites": r.row.num_sites,
                "num_arrived": r.row.num_arrived,
                "num_blocks": len(r.assignment.blocks),
                "makespan_s": r.row.makespan_s,
                "clock_s": r.row.clock_s,
                "busiest_host_samples": int(r.samples.max()),
                "idle_fraction": 1 - r.samples.mean() / r.samples.max() if r.samples.any() else math.nan,
                "wall_s": seconds,
            }
            for r, seconds in zip(self.rounds, self.wall_s.tolist(), strict=True)
        ]

    @cached_property
    def placement(self) -> list[dict[str, int]]:
        """Load of the hosts in the last planned round: one dict per distinct load, the largest first."""
        last = self.rounds[-1]
        loads = np.stack([last.blocks, last.sites, last.samples], axis=1)
        distinct, counts = np.unique(loads, axis=0, return_counts=True)
        names = ("num_hosts", "num_blocks", "num_sites", "num_samples")
        rows = zip(counts.tolist(), *distinct.T.tolist(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows][::-1]

    @cached_property
    def warnings(self) -> list[str]:
        """Warnings about memory, probable mistakes and limits of the results."""
        return [*self._memory_warning(), *warnings(self.aggregator, self.rounds)]

    def _memory_warning(self) -> Iterator[str]:
        """Warn if the arrays of a host need more memory than it has."""
        needed = sum(self.memory[name] for name in HOST_PARTS)
        if needed > self.host_memory_bytes:
            yield (
                f"a host needs {size_text(needed)}, and activations besides, but has "
                f"{size_text(self.host_memory_bytes)}; use a smaller model, or smaller blocks "
                "(engine.sites_per_block, engine.lanes)"
            )

    def values(self) -> dict[str, Any]:
        """The plan as {name: value}, with units in the names; NaN: not known."""
        e, host, world = self.aggregator.experiment, self.aggregator.host, self.aggregator.world
        exchange, speed = self.exchange, self.speed
        return {
            "scenario": e.name,
            "seed": e.seed,
            "policy": e.policy.kind,
            "num_sites": host.num_sites,
            "num_ranks": host.ranks.size,
            "num_hosts": len(host.ranks.hosts),
            "hosts_kind": host.hosts_kind,
            "engine": host.engine.name,
            "blocks": str(host.block_rule),
            "local_training": resolved(host.work),
            "num_params": len(host.initial_params),
            "up_bytes": exchange.up,
            "down_bytes": exchange.down,
            "message_bytes": exchange.counters + exchange.message,
            "exchange_s": exchange.seconds(self.bandwidth_bps),
            "bandwidth_bps": self.bandwidth_bps,
            "simulated_update_bytes": world.update_bytes,
            "memory_bytes": self.memory,
            "process_bytes": self.process_bytes,
            "train_samples_per_s": speed.train_per_s,
            "evaluate_samples_per_s": speed.evaluate_per_s,
            "max_rounds": e.stop.max_rounds,
            "wall_s": float(self.wall_s.sum()),
            "max_rounds_wall_s": self.max_rounds_wall_s,
            "written_bytes": self.written_bytes,
            "rounds": self.first_rounds,
            "placement": self.placement,
            "warnings": self.warnings,
        }
