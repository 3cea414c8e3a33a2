"""`hpctrip plan`: forecasts what a run does and costs on a number of ranks, without running it.

The components of the run are really built (data, shards, model, engine, world) and its own code plans the rounds, so
the plan agrees with the run. Accuracy is not known beforehand: the plan assumes no gain, which is what the policies see
before their first evaluation. For Algorithm 1 of the PowerTrip paper the planned cohorts are those of the run, because
in its multiplicative forms the gain g_r cancels from the choice of k; not so with `policy.gain` realized or measured.
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

DeviceKind = Literal["auto", "cpu", "gpu", "cuda"]
"""Device that the hosts train on; "gpu", or "cuda", works on a machine without one, too. auto: as the input says, else
as on this machine."""


class PlannedRanks(Ranks):
    """The ranks of a planned run, `size` of them, in one process."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size


def forecast(
    experiment: Experiment,
    num_rounds: int,
    speed: Speed | None,
    num_ranks: int = 1,
    bandwidth_bps: float = math.inf,
    device_kind: DeviceKind = "auto",
    memory_bytes: float = math.inf,
) -> Plan:
    """Plan a run on `num_ranks` ranks and look `num_rounds` rounds ahead.

    `speed` is that of a host (None: measured here if possible), `bandwidth_bps` the bandwidth of a rank's link to the
    others, `memory_bytes` the memory of a host (inf: not known). Raises InputError for bad input.
    """
    torch.set_num_threads(experiment.ranks.threads)
    name = experiment.ranks.device if device_kind == "auto" else device_kind
    device = choose_device(name, Ranks())  # to measure on
    hosts_kind = "cuda" if name in ("gpu", "cuda") else device.type
    if speed is None and device.type != hosts_kind:
        speed = Speed(math.nan, math.inf, "there is no GPU here to measure it; --samples-per-second gives it")
    num_sites = experiment.checked_num_sites()
    experiment.workload.prepare_data(experiment.seed)
    task = experiment.workload.checked_task(experiment.seed)
    host = Host(experiment, num_sites, task, PlannedRanks(num_ranks), device, hosts_kind)
    aggregator = Aggregator(host)
    rounds = first_rounds(aggregator, num_rounds)
    speed = speed or probe(host, max(map(len, rounds[0].assignment.blocks), default=1))
    return Plan(aggregator, rounds, speed, bandwidth_bps, memory_bytes)
