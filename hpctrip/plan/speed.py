"""Speed of a host, measured on this machine with a few batches."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.evaluate import evaluate
from hpctrip.runner.host import Host

_PROBE_S = 1.0  # wall time that each of the probe's measurements aims at


@dataclass(frozen=True)
class Speed:
    """Speed of a host."""

    train_per_s: float
    """Training samples per second; NaN: not known."""
    evaluate_per_s: float
    """Evaluated samples per second; inf: not known, so evaluation is taken to cost nothing."""
    origin: str
    """How the speed was obtained, as text."""


def stated(samples_per_second: float) -> Speed:
    """The speed that a user states; evaluation costs nothing."""
    return Speed(samples_per_second, math.inf, "as given")


def probe(host: Host, sites_per_block: int) -> Speed:
    """Measure the speed here: train a few batches of one block of `sites_per_block` sites with the real engine, and
    evaluate one batch. The first of each only warms up."""
    params, batch = host.initial_params, host.work.batch_size
    largest = np.argsort(-host.num_visits, kind="stable")[:sites_per_block]
    block = largest[host.num_visits[largest] > 0].tolist()
    orders = [np.concatenate(host.visits(site, 1)) for site in block]
    fits = host.engine.fitting(params, [[order[:batch]] for order in orders])
    block, orders = block[:fits], orders[:fits]
    partial, compression = (
        PartialSum(host.num_params, 0, host.device, host.num_buffers),
        host.experiment.compression,
    )

    def train(num_batches: int) -> tuple[int, float]:
        """Train `num_batches` batches per site; returns the number of samples and the seconds taken."""
        visited = [[order[: num_batches * batch]] for order in orders]
        began = time.perf_counter()
        for site, update in zip(block, host.engine.train(params, visited), strict=True):
            # compression and sum cost what they cost in a run; the values do not matter, so diverged ones are replaced
            usable = update.delta.nan_to_num(0, 0, 0).clamp(-1, 1)
            residual = host.memory.of(site, params[: host.num_params])[0]
            usable[: host.num_params] = compression.send(usable[: host.num_params], 0, 0, site, residual)
            partial.add(usable, 0.0)
        return sum(len(order) for (order,) in visited), time.perf_counter() - began

    first = host.eval_batches[:1]
    train(1), evaluate(host.task, host.model, params, first)
    samples, seconds = train(2)
    longest = math.ceil(max(map(len, orders)) / batch)
    samples, seconds = train(min(longest, 2 + int(_PROBE_S * 2 / max(seconds, 1e-6))))
    began = time.perf_counter()
    seen = evaluate(host.task, host.model, params, first)["seen"]
    origin = f"measured here in {seconds:.1f} s, {host.device}"
    return Speed(samples / seconds, seen / (time.perf_counter() - began), origin)
