"""`plan`: what a run would do and cost on so many ranks, before a node is paid for.

The parts of the run are really built (data, shards, model, engine, world) and its own steps are asked, so what is
planned is what would run. Accuracy is not known beforehand: no gain is assumed, which is what the policies see before
their first evaluation. Of Algorithm 1 that gives the very cohorts of the run: in its multiplicative forms the gain g_r
cancels from the choice of k.
"""

from __future__ import annotations

import math

import torch
from rich.console import Group

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.experiment import Experiment
from hpctrip.app.forecast.report import report
from hpctrip.app.forecast.rounds import first_rounds
from hpctrip.app.forecast.speed import Speed, probe
from hpctrip.app.host import Host
from hpctrip.app.net import reading
from hpctrip.ranks.base import hosts_of
from hpctrip.ranks.device import choose_device, hosts_kind
from hpctrip.ranks.serial import SerialRanks


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
) -> Group:
    """The report. `bandwidth_bps` is that of a rank's link to the others. Raises InputError for bad input."""
    with reading():
        torch.set_num_threads(experiment.ranks.threads)
        device = choose_device(experiment.ranks.device, SerialRanks())
        kind = hosts_kind(experiment.ranks.device, device, SerialRanks())
        num_sites = experiment.num_sites()
        experiment.workload.prepare_data(experiment.seed)
        task = experiment.workload.checked_task(experiment.seed)
        aggregator = Aggregator(Host(experiment, num_sites, task, PlannedRanks(num_ranks), device, kind))
    rounds = first_rounds(aggregator, num_rounds)
    given = samples_per_second is not None
    speed = Speed(samples_per_second, math.inf, "as given") if given else probe(aggregator.host)
    return report(aggregator, rounds, speed, bandwidth_bps)
