"""What of a planned run is probably not meant, or worth knowing before its results are read."""

from __future__ import annotations

import os

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.forecast.rounds import PlannedRound
from hpctrip.sim.timing import Timing


def warnings(aggregator: Aggregator, rounds: list[PlannedRound]) -> list[str]:
    """What is probably not meant, or worth knowing before the results are read."""
    e, host, world = aggregator.experiment, aggregator.host, aggregator.world
    num_hosts = len(host.ranks.hosts)
    found = []
    most = max(len(r.assignment.blocks) for r in rounds)
    if num_hosts > most:
        found.append(
            f"{num_hosts} hosts, but at most {most} blocks a round here: {num_hosts - most} hosts idle; use fewer "
            f"ranks or a smaller engine.sites_per_block (now {host.sites_per_block})"
        )
    cores = os.cpu_count() or 1
    if host.ranks.size * e.ranks.threads > cores:
        found.append(
            f"{host.ranks.size} ranks of {e.ranks.threads} thread(s) on this machine's {cores} cores would share them"
        )
    sizes = host.num_samples
    if (small := int((sizes < host.work.batch_size).sum())) > 0:
        found.append(
            f"{small} of {len(sizes)} shards have fewer samples (least {sizes.min()}) than one batch of "
            f"{host.work.batch_size}"
        )
    target, chance = e.stop.target_accuracy, 1 / host.task.num_classes
    if target is None:
        found.append(f"no target accuracy: the run ends after max_rounds = {e.stop.max_rounds} at the latest")
    elif target <= 2 * chance:
        found.append(f"target accuracy {target:g} is near chance ({chance:.3g})")
    seen = sum(batch.stop - batch.start for batch in host.eval_batches)
    if seen < 1000:
        found.append(f"accuracy is read on {seen} samples: its steps are {1 / seen:.2g}, its noise more")
    if e.timing.compute == "measured":
        found.append('timing.compute = "measured": the simulated time depends on the machine')
    elif e.timing.seconds_per_sample == Timing().seconds_per_sample:
        found.append(
            f"timing.seconds_per_sample = {e.timing.seconds_per_sample:g} is our default: the paper does not state it"
        )
    if all(r.row.num_arrived == 0 for r in rounds):
        found.append(f"no update arrives in any of these rounds: faults.deadline_s = {e.faults.deadline_s}")
    if host.task.synthetic:
        found.append(f"the data are synthetic: {host.task.source}")
    if world.supply.synthetic:
        found.append(f"the power is synthetic: power.kind = {e.power.kind!r}")
    return found
