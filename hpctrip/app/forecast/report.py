"""The report of `plan`, for a person."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from hpctrip.app.aggregator import Aggregator
from hpctrip.app.forecast.cost import memory_bytes, traffic, wall_s, written_bytes
from hpctrip.app.forecast.rounds import PlannedRound
from hpctrip.app.forecast.speed import Speed
from hpctrip.app.forecast.warnings import warnings
from hpctrip.app.resume import default_path
from hpctrip.base.identity import flat
from hpctrip.base.inputs import resolved
from hpctrip.base.text import printable
from hpctrip.base.units import HOUR_S
from hpctrip.learn.data.cached import cache_dir
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.show import local_training

_OF_A_HOST = ("model", "sum", "engine", "data", "kept")


def report(
    aggregator: Aggregator,
    rounds: list[PlannedRound],
    speed: Speed,
    bandwidth_bps: float,
    memory_bytes_of_a_host: float,
) -> Group:
    """All of it, for a person."""
    e, host, last = aggregator.experiment, aggregator.host, rounds[-1]
    ranks, walls = host.ranks, wall_s(host, rounds, speed, bandwidth_bps)
    sent, memory = traffic(host, last.assignment), memory_bytes(host, last.row.num_sites)
    results, written = default_path(e.name, "TIME"), written_bytes(aggregator, last)
    known = math.isfinite(speed.train_per_s)
    rest = max(0, e.stop.max_rounds - len(rounds))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts = {
        "scenario": f"{e.name}, seed {e.seed}: policy {e.policy.kind} over {host.num_sites} sites",
        "ranks": f"{ranks.size}: {len(ranks.hosts)} host(s)"
        + (", rank 0 is the aggregator" if ranks.size > 1 else " that is aggregator too"),
        "hosts train": f"on a {'GPU' if host.hosts_kind == 'cuda' else 'CPU'}, {host.engine_choice}, {host.block_rule}",
        "local training": local_training(flat({"train": resolved(host.work)})),
        "model": f"{len(host.initial_params):,} parameters",
        "exchange": f"per rank and round: {size(sent.up)} up, {size(sent.down)} down, "
        f"{size(sent.counters + sent.message)} of counters and assignment; "
        f"{sent.seconds(bandwidth_bps):.2g} s a round at {bandwidth_bps / 1e9:g} Gbit/s",
        "simulated WAN": f"updates of {aggregator.updates}",
        "memory, a host": ", ".join(f"{name} {size(memory[name])}" for name in _OF_A_HOST if memory[name])
        + f"; besides: activations, and the process itself (this one: {size(own)})",
        "memory, aggregator": size(memory["aggregator"]) if ranks.size > 1 else "as the host",
        "speed of a host": (f"{speed.train_per_s:,.0f} samples/s trained" if known else "not known")
        + (f", {speed.evaluate_per_s:,.0f} evaluated" if math.isfinite(speed.evaluate_per_s) else "")
        + f" ({speed.origin})",
        "wall time": f"{walls.sum():.1f} s for {len(rounds)} rounds, "
        f"{_duration(walls.sum() + rest * walls[-1])} for max_rounds = {e.stop.max_rounds}"
        if known
        else "not known",
        "written": f"{results}: at most {size(written['results'])} after max_rounds; "
        + (
            f"{' and '.join(checkpoints.SUFFIXES)} beside it: {size(written['checkpoint'])} each; "
            if e.checkpoint.enabled
            else "no checkpoints; "
        )
        + f"prepared data in {cache_dir()}",
    }
    head = Table(show_header=False, box=None, pad_edge=False)
    head.add_column(style="dim", no_wrap=True)
    head.add_column(overflow="fold")
    for name, text in facts.items():
        head.add_row(name, Text(printable(text, 1000)))
    found = [*_too_much(memory, memory_bytes_of_a_host), *warnings(aggregator, rounds)]
    notes = [Text(printable(f"! {warning}", 1000)) for warning in found]
    return Group(head, Text(), _rounds_table(rounds, walls), Text(), _hosts_table(last), Text(), *notes)


def _too_much(memory: dict[str, int], most: float) -> Iterator[str]:
    """Where what is known of a host's memory is more than it has."""
    needed = sum(memory[name] for name in _OF_A_HOST)
    if needed > most:
        yield (
            f"a host needs {size(needed)}, and activations besides, but has {size(most)}; use a smaller model, or "
            "smaller blocks (engine.sites_per_block, engine.lanes)"
        )


def _rounds_table(rounds: list[PlannedRound], walls: np.ndarray) -> Table:
    table = Table(
        title="first rounds, no accuracy gain assumed", title_justify="left", box=None, pad_edge=False
    )
    for name in (
        "round",
        "sites",
        "arrive",
        "blocks",
        "duration s",
        "clock h",
        "busiest host",
        "idle",
        "wall s",
    ):
        table.add_column(name, justify="right")
    for r, seconds in zip(rounds, walls, strict=True):
        busiest = int(r.samples.max())
        table.add_row(
            str(r.row.round),
            str(r.row.num_sites),
            str(r.row.num_arrived),
            str(len(r.assignment.blocks)),
            f"{r.row.makespan_s:.1f}",
            f"{r.row.clock_s / HOUR_S:.3f}",
            f"{busiest:,} samples",
            f"{1 - r.samples.mean() / busiest:.0%}" if busiest else "-",
            "-" if math.isnan(seconds) else f"{seconds:.2f}",
        )
    return table


def _hosts_table(last: PlannedRound) -> Table:
    """Hosts with the same load share a row: 40 hosts are a few rows."""
    title = f"placement in round {last.row.round}: longest first onto the least loaded host"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("hosts", "blocks each", "sites each", "samples each"):
        table.add_column(name, justify="right")
    loads = np.stack([last.blocks, last.sites, last.samples], axis=1)
    kinds, counts = np.unique(loads, axis=0, return_counts=True)
    for (blocks, sites, samples), count in list(zip(kinds.tolist(), counts.tolist(), strict=True))[::-1]:
        table.add_row(str(count), str(blocks), str(sites), f"{samples:,}")
    return table


def size(num_bytes: float) -> str:
    """Bytes in a few characters: 1.5 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}" if num_bytes < 1000 else f"{num_bytes:,.0f} {unit}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / HOUR_S:.2f} h"
