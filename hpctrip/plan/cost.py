"""Costs of a planned run: wall time, memory, traffic, disk. Each component reports its own part.

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
    """Bytes that the ranks exchange in one round."""
    size = host.ranks.size
    num_tail = TRAINING.size(len(assignment.cohort), size)
    return Traffic.of(size, len(host.initial_params), num_tail, EVALUATION.size(0, size), assignment)


def wall_s(host: Host, rounds: list[PlannedRound], speed: Speed, bandwidth_bps: float) -> np.ndarray:
    """Predicted wall time of every round in seconds, [num_rounds]; NaN if the speed is not known. It is the sum of the
    training time of the busiest host, the exchange of the vectors and the evaluation."""
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
    """Peak bytes of the arrays of a rank for a cohort of `num_sites` sites, {purpose: bytes}.

    model: 4 P each for the local copy, the old and the new global parameters; the server's slots; frozen parameters
    once, as all models of a rank share them.
    data: training set; each GPU has a copy, the CPUs of a node share a memory-mapped one.
    kept: state of the sites between rounds, on the host with most sites.
    aggregator: the model, the received sum and its own, two float64 vectors of 8 P in the server's step and, while a
    checkpoint is written, the state of all sites.
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
    """Sizes in bytes of the results file and of each of the two checkpoints after max_rounds rounds like `last`."""
    host, num_rounds = aggregator.host, aggregator.experiment.stop.max_rounds
    row, num_sites = last.row, host.num_sites
    rows = num_rounds * schema.row_bytes(row.num_sites, len(row.candidates.k) if row.candidates else 0)
    site_state = num_sites * host.memory.length
    return {
        "results": rows + schema.empty_bytes(num_sites),
        "checkpoint": rows + checkpoint.model_bytes(len(host.initial_params), len(host.slots), site_state),
    }
