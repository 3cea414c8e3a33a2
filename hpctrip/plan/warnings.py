"""Warnings about a planned run: probable mistakes, and limits to know before reading the results."""

from __future__ import annotations

import os

from hpctrip.base.text import size_text
from hpctrip.plan.plan import HOST_PARTS, Plan
from hpctrip.runner.aggregator import idle_hosts
from hpctrip.sim.timing import Timing


def warnings(plan: Plan) -> list[str]:
    """Warnings about memory, probable mistakes, and limits to know before reading the results, one line each."""
    aggregator, rounds = plan.aggregator, plan.rounds
    e, host, world = aggregator.experiment, aggregator.host, aggregator.world
    lines = []
    needed = sum(plan.memory[name] for name in HOST_PARTS)
    if needed > plan.host_memory_bytes:
        lines.append(
            f"a host needs {size_text(needed)}, plus activations, but has {size_text(plan.host_memory_bytes)}; "
            "use a smaller model, or smaller blocks (engine.sites_per_block, engine.lanes)"
        )
    if note := idle_hosts(host, [r.assignment for r in rounds], "in any of these rounds"):
        lines.append(note)
    lanes, num_hosts = e.engine.lanes or 1, len(host.ranks.hosts)
    size = host.sites_per_block(rounds[-1].row.num_sites)
    if 2 * num_hosts <= lanes and size < host.block_rule.most:
        lines.append(
            f"blocks of {size} sites, cut for engine.lanes = {lanes} hosts, are small for {num_hosts} host(s): "
            f"engine.lanes = {num_hosts} would be faster here (and give other last bits)"
        )
    cores, threads = os.cpu_count() or 1, e.ranks.threads
    busy = max(int((r.loads.num_blocks > 0).sum()) for r in rounds)  # rank 0, among others, mostly waits
    if host.hosts_kind == "cpu" and busy > 1 and busy * threads > cores:
        lines.append(
            f"{busy} hosts of {threads} thread(s) at work on this machine's {cores} cores would train about "
            f"{busy * threads / cores:.2g} times as long as predicted; -n {max(1, cores // threads) + 1} fills them"
        )
    sizes = host.num_samples
    if (small := int((sizes < host.work.batch_size).sum())) > 0:
        lines.append(
            f"{small} of {len(sizes)} shards have fewer samples (minimum {sizes.min()}) than one batch of "
            f"{host.work.batch_size}"
        )
    target, chance = e.stop.target_accuracy, 1 / host.task.num_classes
    if target is None:
        lines.append(f"no target accuracy: the run ends after max_rounds = {e.stop.max_rounds} at the latest")
    elif target <= 2 * chance:
        lines.append(f"target accuracy {target:g} is near chance ({chance:.3g})")
    seen = sum(batch.stop - batch.start for batch in host.eval_batches)
    if seen < 1000:
        lines.append(
            f"accuracy is measured on {seen} samples: its resolution is {1 / seen:.2g}, and its noise is larger"
        )
    lines += e.network.warnings()
    if e.timing.compute == "measured":
        lines.append('timing.compute = "measured": the simulated time depends on the machine')
    elif e.timing.seconds_per_sample == Timing().seconds_per_sample:
        lines.append(
            f"timing.seconds_per_sample = {e.timing.seconds_per_sample:g} is our default: the paper does not state it"
        )
    if all(r.row.num_arrived == 0 for r in rounds):
        lines.append(f"no update arrives in any of these rounds: faults.deadline_s = {e.faults.deadline_s}")
    if host.task.synthetic:
        lines.append(f"the data are synthetic: {host.task.source}")
    if world.supply.synthetic:
        lines.append(f"the power is synthetic: power.kind = {e.power.kind!r}")
    return lines
