"""What a planned run costs: wall time, memory, traffic, disk. Each part is asked of whoever owns it.

Symbols: P parameters, T counters in the tail of the sum, k sites of the cohort.
"""

from __future__ import annotations

import math

import numpy as np

from hpctrip.learn.aggregate import partial_sum_bytes
from hpctrip.learn.counters import EVALUATION, TRAINING
from hpctrip.plan.rounds import PlannedRound
from hpctrip.plan.speed import Speed
from hpctrip.ranks.placement import Assignment, Traffic
from hpctrip.record import checkpoint, schema
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.host import Host


def traffic(host: Host, assignment: Assignment) -> Traffic:
    """Of one round's exchange."""
    size = host.ranks.size
    num_tail = TRAINING.size(len(assignment.cohort), size)
    return Traffic.of(size, len(host.initial_params), num_tail, EVALUATION.size(0, size), assignment)


def wall_s(host: Host, rounds: list[PlannedRound], speed: Speed, bandwidth_bps: float) -> np.ndarray:
    """Predicted wall time of every round: the busiest host trains, the vectors are exchanged, the batches evaluated.
    NaN where the speed is not known."""
    batches = math.ceil(len(host.eval_batches) / len(host.ranks.hosts))
    evaluation_s = batches * host.experiment.evaluate.batch_size / speed.evaluate_per_s
    return np.array(
        [
            r.samples.max() / speed.train_per_s
            + traffic(host, r.assignment).seconds(bandwidth_bps)
            + r.assignment.evaluate * evaluation_s
            for r in rounds
        ]
    )


def memory_bytes(host: Host, num_sites: int) -> dict[str, int]:
    """Peak bytes of arrays that a rank holds for a cohort of so many sites, by what they are.

    model: 4 P each for the local copy, the old and the new global parameters; the server's slots; frozen parameters
    once, as all models of a rank share them.
    data: training set, on a GPU its own copy, on CPUs one memory-mapped copy a node.
    kept: what sites keep at the host (the fullest host).
    aggregator: the model, the received sum and its own, and two float64 vectors of 8 P in the server's step; while a
    checkpoint is written, what all sites keep.
    """
    p, t = len(host.initial_params), TRAINING.size(num_sites, host.ranks.size)
    frozen = sum(q.numel() * q.element_size() for q in host.model.parameters() if not q.requires_grad)
    model = 12 * p + host.slots.nbytes + frozen
    sites_at = np.zeros(1, dtype=np.int64) if host.fixed_hosts is None else np.bincount(host.fixed_hosts)
    return {
        "model": model,
        "sum": partial_sum_bytes(p, t),
        "engine": host.engine.memory_bytes(host.sites_per_block(num_sites)),
        "data": host.task.train.nbytes,
        "kept": 4 * host.memory.length * int(sites_at.max()),
        "aggregator": model + 16 * (p + t) + 16 * p + 4 * host.memory.length * int(sites_at.sum()),
    }


def written_bytes(aggregator: Aggregator, last: PlannedRound) -> dict[str, int]:
    """Sizes of the results file and of each of two checkpoints after max_rounds rounds like `last`."""
    host, num_rounds = aggregator.host, aggregator.experiment.stop.max_rounds
    row, num_sites = last.row, host.num_sites
    rows = num_rounds * schema.row_bytes(row.num_sites, len(row.candidates.k) if row.candidates else 0)
    kept = num_sites * host.memory.length
    return {
        "results": rows + schema.empty_bytes(num_sites),
        "checkpoint": rows + checkpoint.model_bytes(len(host.initial_params), len(host.slots), kept),
    }
