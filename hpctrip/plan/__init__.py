"""`hpctrip plan`: forecasts what a run does and costs on a number of ranks, without running it.

The components of the run are really built (data, shards, model, engine, world) and its own code plans the rounds, so
the plan agrees with the run. Accuracy is not known beforehand: the plan assumes no gain, which is what the policies see
before their first evaluation. For Algorithm 1 of the PowerTrip paper the planned cohorts are those of the run, because
in its multiplicative forms the gain g_r cancels from the choice of k.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from hpctrip.plan.plan import Plan, first_rounds
from hpctrip.plan.speed import Speed, probe
from hpctrip.ranks.base import Ranks, choose_device
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Experiment
from hpctrip.runner.host import Host

DeviceKind = Literal["auto", "cpu", "gpu"]
"""Device that the hosts train on; "gpu" works on a machine without one, too. auto: as the input says, else as on this
machine."""


class PlannedRanks(Ranks):
    """The ranks of a planned run, `size` of them, in one process."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size


def forecast(
    experiment: Experiment,
    num_ranks: int,
    num_rounds: int,
    samples_per_second: float | None,
    bandwidth_bps: float,
    device_kind: DeviceKind = "auto",
    memory_bytes: float | None = None,
) -> Plan:
    """Plan a run on `num_ranks` ranks and look `num_rounds` rounds ahead.

    `samples_per_second` is the training speed of a host (None: measured here if possible), `bandwidth_bps` the
    bandwidth of a rank's link to the others, `memory_bytes` the memory of a host (None: not known). Raises InputError
    for bad input.
    """
    host = _host(experiment, num_ranks, device_kind)
    speed = None
    if samples_per_second is not None:
        speed = Speed(samples_per_second, math.inf, "as given")
    elif host.device.type != host.hosts_kind:
        speed = Speed(math.nan, math.inf, "there is no GPU here to measure it; --samples-per-second gives it")
    return _plan(host, num_rounds, speed, bandwidth_bps, memory_bytes or math.inf)


def forecast_one_rank(experiment: Experiment, num_rounds: int, speed: Speed | None) -> Plan:
    """Plan a run on one rank of this machine; the speed is measured if it is None. Raises InputError for bad input."""
    return _plan(_host(experiment, 1, "auto"), num_rounds, speed, math.inf, math.inf)


def _plan(
    host: Host, num_rounds: int, speed: Speed | None, bandwidth_bps: float, memory_bytes: float
) -> Plan:
    aggregator = Aggregator(host)
    rounds = first_rounds(aggregator, num_rounds)
    speed = speed or probe(host, max(map(len, rounds[0].assignment.blocks), default=1))
    return Plan(aggregator, rounds, speed, bandwidth_bps, memory_bytes)


def _host(experiment: Experiment, num_ranks: int, device_kind: DeviceKind) -> Host:
    """The components of the run on planned ranks, on the device to measure on."""
    torch.set_num_threads(experiment.ranks.threads)
    name = experiment.ranks.device if device_kind == "auto" else device_kind
    device = choose_device(name, Ranks())
    kind = "cuda" if name in ("gpu", "cuda") else device.type
    num_sites = experiment.num_sites()
    experiment.workload.prepare_data(experiment.seed)
    task = experiment.workload.checked_task(experiment.seed)
    return Host(experiment, num_sites, task, PlannedRanks(num_ranks), device, kind)
