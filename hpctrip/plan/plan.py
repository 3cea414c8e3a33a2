"""What a run would do and cost, in numbers: the report says them in words, `values` for other programs."""

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
from hpctrip.plan.cost import memory_bytes, traffic, wall_s, written_bytes
from hpctrip.plan.rounds import PlannedRound
from hpctrip.plan.speed import Speed
from hpctrip.plan.warnings import warnings
from hpctrip.ranks.placement import Traffic
from hpctrip.runner.aggregator import Aggregator

OF_A_HOST = ("model", "sum", "engine", "data", "kept")
"""The parts of `Plan.memory` that every host has."""


@dataclass(frozen=True)
class Plan:
    """A planned run: its parts, which are really built, and what follows from them."""

    aggregator: Aggregator
    rounds: list[PlannedRound]
    speed: Speed
    bandwidth_bps: float
    """Of a rank's link to the others."""
    most_memory_bytes: float
    """What a host has; inf: not known."""

    @cached_property
    def walls(self) -> np.ndarray:
        """Wall seconds of every planned round; NaN where the speed is not known."""
        return wall_s(self.aggregator.host, self.rounds, self.speed, self.bandwidth_bps)

    @property
    def max_rounds_wall_s(self) -> float:
        """Wall time of all rounds, if those that are not planned are like the last one."""
        rest = max(0, self.aggregator.experiment.stop.max_rounds - len(self.rounds))
        return float(self.walls.sum() + rest * self.walls[-1])

    @cached_property
    def sent(self) -> Traffic:
        """Bytes of the last planned round's exchange."""
        return traffic(self.aggregator.host, self.rounds[-1].assignment)

    @cached_property
    def memory(self) -> dict[str, int]:
        """Peak bytes, see `memory_bytes`."""
        return memory_bytes(self.aggregator.host, self.rounds[-1].row.num_sites)

    @cached_property
    def written(self) -> dict[str, int]:
        """Bytes on disk, see `written_bytes`."""
        return written_bytes(self.aggregator, self.rounds[-1])

    @cached_property
    def process_bytes(self) -> int:
        """The largest that this process, which has planned, has been."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @cached_property
    def first_rounds(self) -> list[dict[str, Any]]:
        """The planned rounds, a table by rows."""
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
            for r, seconds in zip(self.rounds, self.walls.tolist(), strict=True)
        ]

    @cached_property
    def placement(self) -> list[dict[str, int]]:
        """The hosts of the last planned round, those with the same load in one row, the fullest first."""
        last = self.rounds[-1]
        loads = np.stack([last.blocks, last.sites, last.samples], axis=1)
        kinds, counts = np.unique(loads, axis=0, return_counts=True)
        names = ("num_hosts", "num_blocks", "num_sites", "num_samples")
        rows = zip(counts.tolist(), *kinds.T.tolist(), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows][::-1]

    @cached_property
    def warnings(self) -> list[str]:
        """What is too much, probably not meant, or worth knowing."""
        return [*self._too_much(), *warnings(self.aggregator, self.rounds)]

    def _too_much(self) -> Iterator[str]:
        """Where what is known of a host's memory is more than it has."""
        needed = sum(self.memory[name] for name in OF_A_HOST)
        if needed > self.most_memory_bytes:
            yield (
                f"a host needs {size_text(needed)}, and activations besides, but has "
                f"{size_text(self.most_memory_bytes)}; use a smaller model, or smaller blocks "
                "(engine.sites_per_block, engine.lanes)"
            )

    def values(self) -> dict[str, Any]:
        """{name: value} with units in the names; NaN: not known."""
        e, host, world = self.aggregator.experiment, self.aggregator.host, self.aggregator.world
        sent, speed = self.sent, self.speed
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
            "up_bytes": sent.up,
            "down_bytes": sent.down,
            "message_bytes": sent.counters + sent.message,
            "exchange_s": sent.seconds(self.bandwidth_bps),
            "bandwidth_bps": self.bandwidth_bps,
            "simulated_update_bytes": world.update_bytes,
            "memory_bytes": self.memory,
            "process_bytes": self.process_bytes,
            "train_samples_per_s": speed.train_per_s,
            "evaluate_samples_per_s": speed.evaluate_per_s,
            "max_rounds": e.stop.max_rounds,
            "wall_s": float(self.walls.sum()),
            "max_rounds_wall_s": self.max_rounds_wall_s,
            "written_bytes": self.written,
            "rounds": self.first_rounds,
            "placement": self.placement,
            "warnings": self.warnings,
        }
