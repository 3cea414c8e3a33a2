"""Output of `hpctrip plan`: a text report, or its numbers by name; with warnings about probable mistakes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from hpctrip.base.text import aligned, counted, duration, labelled, printable, size_text
from hpctrip.base.units import HOUR_S, amount
from hpctrip.config.inputs import resolved
from hpctrip.learn.data.cached import cache_dir
from hpctrip.plan.plan import HOST_PARTS, Plan
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.lock import default_path
from hpctrip.record.show import bills, local_training
from hpctrip.runner.aggregator import idle_hosts
from hpctrip.sim import plausible
from hpctrip.sim.quantities import QUANTITIES
from hpctrip.sim.sites import numbered
from hpctrip.sim.timing import Timing

SIMULATED = ("makespan_s", *(quantity.column for quantity in QUANTITIES))
"""Columns of the planned rounds of which the report has sums."""


def report(plan: Plan) -> list[str]:
    """The lines of the whole report."""
    aggregator, rounds, speed = plan.aggregator, plan.rounds, plan.speed
    e, host, memory = aggregator.experiment, aggregator.host, plan.memory
    last = rounds[-1].assignment
    exchange = plan.exchange(last)
    num_rounds, rule = plan.end
    end = rule if rule.startswith("max_rounds") else f"{rule} ({num_rounds} rounds)"
    ranks, written, speed_known = host.ranks, plan.written_bytes, math.isfinite(speed.train_per_s)
    facts = {
        "scenario": f"{e.name}, seed {e.seed}: policy {e.policy.kind} over {host.num_sites} sites",
        "ranks": f"{ranks.size}: {len(ranks.hosts)} host(s)"
        + (", rank 0 is the aggregator" if ranks.size > 1 else ", which is also the aggregator"),
        "hosts train": f"on a {'GPU' if host.hosts_kind == 'cuda' else 'CPU'}, {host.engine_choice}, {host.block_rule}",
        "local training": local_training(resolved(host.work)),
        "model": f"{host.num_params:,} parameters",
        "exchange": f"per rank and round: {size_text(exchange['up'])} up, {size_text(exchange['down'])} down, "
        f"{size_text(exchange['counters'] + exchange['message'])} of counters and assignment; "
        f"{plan.exchange_s(last):.2g} s per round at {plan.bandwidth_bps / 1e9:g} Gbit/s",
        "simulated WAN": f"updates of {aggregator.updates}",
        "memory per host": ", ".join(
            f"{name} {size_text(memory[name])}" for name in HOST_PARTS if memory[name]
        )
        + f"; plus activations and the process itself ({size_text(plan.process_bytes)} here)",
        "memory, aggregator": size_text(memory["aggregator"]) if ranks.size > 1 else "as on the host",
        "speed per host": (f"{speed.train_per_s:,.0f} samples/s trained" if speed_known else "unknown")
        + (f", {speed.evaluate_per_s:,.0f} evaluated" if math.isfinite(speed.evaluate_per_s) else "")
        + f" ({speed.origin})",
        "wall time": f"{plan.wall_s.sum():.1f} s for {len(rounds)} rounds, "
        f"{duration(plan.total('wall_s', num_rounds))} for {end}"
        if speed_known
        else "unknown",
        "simulated": f"{_simulated(plan, len(rounds))} for {len(rounds)} rounds; "
        f"{_simulated(plan, num_rounds)} for {end}, if nothing is learnt; with training a policy may choose others",
        "written": f"{default_path(e.name, 'TIME')}: at most {size_text(written['results'])} after max_rounds; "
        + (
            f"{' and '.join(checkpoints.SUFFIXES)} beside it: {size_text(written['checkpoint'])} each; "
            if e.checkpoint.enabled
            else "no checkpoints; "
        )
        + f"prepared data in {cache_dir()}",
    }
    notes = [printable(f"! {warning}", 1000) for warning in warnings(plan)]
    return [*labelled(facts, 1000), "", *_rounds_table(plan), "", *_hosts_table(plan), "", *notes]


def _simulated(plan: Plan, num_rounds: int) -> str:
    """Simulated hours of the first rounds, and what they spend."""
    totals = {name: plan.total(name, num_rounds) for name in SIMULATED}
    spent = bills(totals, plan.aggregator.experiment.accounts.currency).values()
    return ", ".join((f"{totals['makespan_s'] / HOUR_S:.3g} h", amount(totals["energy_j"], "joules"), *spent))


def _rounds_table(plan: Plan) -> list[str]:
    head = ("round", "sites", "arrive", "blocks", "duration s", "clock h", "busiest host", "idle", "wall s")
    rows = []
    for row in plan.first_rounds:
        number, *numbers, makespan_s, clock_s, busiest, idle, wall_s = [*row.values()][: -len(QUANTITIES)]
        shares = "-" if math.isnan(idle) else f"{idle:.0%}", "-" if math.isnan(wall_s) else f"{wall_s:.2f}"
        times = f"{makespan_s:.1f}", f"{clock_s / HOUR_S:.3f}", f"{busiest:,} samples"
        rows.append((f"{number:5}", *map(str, numbers), *times, *shares))
    names, last = plan.aggregator.experiment.sites.columns().get("name", ()), plan.rounds[-1].row
    sites = shown_sites([numbered(site, names) for site in last.cohort.site.tolist()])
    return [
        "first rounds",
        *aligned(head, rows),
        f"sites of round {last.round}: {sites}",
    ]


def shown_sites(names: Sequence[str]) -> str:
    """The first twenty of some sites."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _hosts_table(plan: Plan) -> list[str]:
    """Table of the hosts; hosts with the same load share a row."""
    rows = [
        [f"{number:5,}", *(f"{load:,}" for load in loads)]
        for number, *loads in map(dict.values, plan.placement)
    ]
    return [
        f"placement in round {plan.rounds[-1].row.round}: longest first onto the least loaded host",
        *aligned(("hosts", "blocks each", "sites each", "samples each"), rows),
    ]


def values(plan: Plan) -> dict[str, Any]:
    """The plan as {name: value}, with units in the names; NaN: not known."""
    e, host, world = plan.aggregator.experiment, plan.aggregator.host, plan.aggregator.world
    speed, rounds, last = plan.speed, plan.rounds, plan.rounds[-1].assignment
    exchange = plan.exchange(last)
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
        "num_params": host.num_params,
        "up_bytes": exchange["up"],
        "down_bytes": exchange["down"],
        "message_bytes": exchange["counters"] + exchange["message"],
        "exchange_s": plan.exchange_s(last),
        "bandwidth_bps": plan.bandwidth_bps,
        "simulated_update_bytes": world.update_bytes,
        "memory_bytes": plan.memory,
        "process_bytes": plan.process_bytes,
        "train_samples_per_s": speed.train_per_s,
        "evaluate_samples_per_s": speed.evaluate_per_s,
        "max_rounds": e.stop.max_rounds,
        "end": {"rounds": plan.end[0], "rule": plan.end[1]},
        "wall_s": float(plan.wall_s.sum()),
        **{f"max_rounds_{name}": plan.total(name, e.stop.max_rounds) for name in ("wall_s", *SIMULATED)},
        "written_bytes": plan.written_bytes,
        "rounds": [
            row | {"sites": planned.row.cohort.site.tolist()}
            for row, planned in zip(plan.first_rounds, rounds, strict=True)
        ],
        "placement": plan.placement,
        "warnings": warnings(plan),
    }


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
    lines += e.ranks.warnings([len(os.sched_getaffinity(0))] if host.hosts_kind == "cpu" else [])
    sizes = host.num_samples
    if (small := int((sizes < host.work.batch_size).sum())) > 0:
        lines.append(
            f"{small} of {len(sizes)} shards have fewer samples (minimum {sizes.min()}) than one batch of "
            f"{host.work.batch_size}"
        )
    lines += _about_the_target(plan)
    lines += plausible.warnings(world, plan.end_s)
    if e.timing.compute == "measured":
        lines.append('timing.compute = "measured": the simulated time depends on the machine')
    elif plausible.without_own_speed(world).any() and e.timing.seconds_per_sample == (
        default_s := Timing().seconds_per_sample
    ):
        lines.append(f"timing.seconds_per_sample = {default_s:g} is our default: the paper does not state it")
    if all(r.row.num_arrived == 0 for r in rounds):
        lines.append(f"no update arrives in any of these rounds: faults.deadline_s = {e.faults.deadline_s}")
    if host.task.synthetic:
        lines.append(f"the data are synthetic: {host.task.source}")
    if world.supply.synthetic:
        lines.append(f"the power is synthetic: power.kind = {e.power.kind!r}")
    return lines


def _about_the_target(plan: Plan) -> Iterator[str]:
    """Warnings about the target accuracy, its deadline and the test set."""
    e, task = plan.aggregator.experiment, plan.aggregator.host.task
    target, chance = e.stop.target_accuracy, 1 / task.num_classes
    if target is None:
        yield f"no target accuracy: the run ends after {plan.end[1]} at the latest"
    elif target <= 2 * chance:
        yield f"target accuracy {target:g} is near chance ({chance:.3g})"
    if e.deadline_s > 0 and (late_s := plan.end_s - e.deadline_s) > 0:
        yield (
            f"after all {counted(plan.end[0], 'round')} the run ends {late_s / HOUR_S:.3g} h late; its deadline of "
            f"{e.deadline_s / HOUR_S:.3g} h is about {counted(plan.rounds_within(e.deadline_s), 'round')} away: "
            "whether it learns enough by then, a run tells"
        )
    seen = task.test.labels.size
    if seen < 1000:
        yield f"accuracy is measured on {seen} predictions: its resolution is {1 / seen:.2g}, its noise is larger"
