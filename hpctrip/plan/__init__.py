"""`plan`: what a run would do and cost on so many ranks, before a node is paid for.

The parts of the run are really built (data, shards, model, engine, world) and its own steps are asked, so what is
planned is what would run. Accuracy is not known beforehand: no gain is assumed, which is what the policies see before
their first evaluation. Of Algorithm 1 that gives the very cohorts of the run: in its multiplicative forms the gain g_r
cancels from the choice of k.
"""

from __future__ import annotations

import math
from typing import Literal

import torch

from hpctrip.plan.plan import Plan
from hpctrip.plan.rounds import first_rounds
from hpctrip.plan.speed import Speed, probe
from hpctrip.ranks.base import hosts_of
from hpctrip.ranks.device import choose_device
from hpctrip.ranks.serial import SerialRanks
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.experiment import Experiment
from hpctrip.runner.host import Host

Planned = Literal["auto", "cpu", "gpu"]
"""What the hosts train on: GPUs may be planned where there are none. auto: as the input says, else as it is here."""


class PlannedRanks(SerialRanks):
    """One process that plans for `size` ranks."""

    def __init__(self, size: int):
        self.size, self.hosts = size, hosts_of(size)


def forecast(
    experiment: Experiment,
    num_ranks: int,
    num_rounds: int,
    samples_per_second: float | None,
    bandwidth_bps: float,
    planned: Planned = "auto",
    memory_bytes: float | None = None,
) -> Plan:
    """The plan. `bandwidth_bps` is that of a rank's link to the others, `memory_bytes` what a host has (None: not
    known). Raises InputError for bad input."""
    aggregator, device = _built(experiment, num_ranks, planned)
    rounds = first_rounds(aggregator, num_rounds)
    kind = aggregator.host.hosts_kind
    if samples_per_second is not None:
        speed = Speed(samples_per_second, math.inf, "as given")
    elif device.type == kind:
        speed = probe(aggregator.host, max(map(len, rounds[0].assignment.blocks), default=1))
    else:
        speed = Speed(math.nan, math.inf, "there is no GPU here to measure it; --samples-per-second gives it")
    return Plan(aggregator, rounds, speed, bandwidth_bps, memory_bytes or math.inf)


def alone(experiment: Experiment, num_rounds: int, speed: Speed | None) -> Plan:
    """The plan of a run on one rank of this machine, at a speed that is measured where it is not known. Raises
    InputError for bad input."""
    aggregator, _ = _built(experiment, 1, "auto")
    rounds = first_rounds(aggregator, num_rounds)
    speed = speed or probe(aggregator.host, max(map(len, rounds[0].assignment.blocks), default=1))
    return Plan(aggregator, rounds, speed, math.inf, math.inf)


def _built(experiment: Experiment, num_ranks: int, planned: Planned) -> tuple[Aggregator, torch.device]:
    """The parts of the run on planned ranks, and the device to measure on."""
    torch.set_num_threads(experiment.ranks.threads)
    device, kind = _device(experiment.ranks.device if planned == "auto" else planned)
    num_sites = experiment.num_sites()
    experiment.workload.prepare_data(experiment.seed)
    task = experiment.workload.checked_task(experiment.seed)
    host = Host(experiment, num_sites, task, PlannedRanks(num_ranks), device, kind)
    return Aggregator(host), device


def _device(name: str) -> tuple[torch.device, str]:
    """The device to plan on, and the kind ("cpu" or "cuda") that the hosts have."""
    device = choose_device(name, SerialRanks())
    return device, "cuda" if name in ("gpu", "cuda") else device.type
