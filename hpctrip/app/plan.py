"""`plan`: what a run would do and cost on so many ranks, before a node is paid for.

The parts of the run are really built (data, shards, model, engine, world) and its own steps are asked, so what is
planned is what would run. Accuracy is not known beforehand: no gain is assumed, which is what the policies see before
their first evaluation. Of Algorithm 1 that gives the very cohorts of the run: in its multiplicative forms the gain g_r
cancels from the choice of k.

Symbols: P parameters, T tail counters, S sites of a block, k sites of a cohort.
"""

from __future__ import annotations

import math
import os
import pickle
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Group
from rich.table import Table
from rich.text import Text

from hpctrip.app.config import read_input
from hpctrip.app.experiment import Plan, Run, State
from hpctrip.app.resume import default_path
from hpctrip.base.units import HOUR_S
from hpctrip.learn.aggregate import PartialSum
from hpctrip.learn.compression import Compressor
from hpctrip.learn.data.cached import cache_dir
from hpctrip.learn.engines.base import SiteWork
from hpctrip.learn.evaluate import evaluate
from hpctrip.ranks.base import hosts_of
from hpctrip.ranks.device import choose_device, hosts_kind
from hpctrip.ranks.serial import SerialRanks
from hpctrip.record import checkpoint as checkpoints
from hpctrip.sim.rounds import Candidates, CohortRound, RoundRow, Status, columns
from hpctrip.sim.timing import RoundTiming, Timing

_EMPTY_FILE_BYTES = 40_000  # names, units, descriptions, input of a results file: 35 kB in the tests' one
_PROBE_S = 1.0  # wall time that each of the probe's measurements aims at


class PlannedRanks(SerialRanks):
    """One process that plans for `size` ranks."""

    def __init__(self, size: int):
        self.size, self.hosts = size, hosts_of(size)


@dataclass(frozen=True)
class Speed:
    """How fast one host is."""

    train_per_s: float
    """Training samples per second."""
    evaluate_per_s: float
    """Held-out samples per second; inf: not known, taken as free."""
    origin: str


@dataclass(frozen=True)
class PlannedRound:
    """One round as it would be."""

    plan: Plan
    timing: RoundTiming
    num_candidates: int
    sites: np.ndarray
    """Sites of every host, [num_hosts]."""
    blocks: np.ndarray
    """Blocks of every host, [num_hosts]."""
    samples: np.ndarray
    """Training samples of every host, [num_hosts]."""
    clock_s: float
    """Simulated time at its end."""


def plan(
    paths: Iterable[str],
    overrides: Iterable[str],
    num_ranks: int,
    num_rounds: int,
    samples_per_second: float | None,
    bandwidth_bps: float,
) -> Group:
    """The report. `bandwidth_bps` is that of a rank's link to the others. Raises InputError for bad input."""
    experiment = read_input(paths, overrides).experiment
    torch.set_num_threads(experiment.ranks.threads)
    ranks = PlannedRanks(num_ranks)
    device = choose_device(experiment.ranks.device, SerialRanks())
    kind = hosts_kind(experiment.ranks.device, device, SerialRanks())
    experiment.workload.prepare_data(experiment.seed)
    run = Run(experiment, experiment.workload.task(experiment.seed), ranks, device, kind)
    rounds = forecast(run, num_rounds)
    speed = probe(run) if samples_per_second is None else Speed(samples_per_second, math.inf, "as given")
    return report(run, rounds, speed, bandwidth_bps)


def forecast(run: Run, num_rounds: int) -> list[PlannedRound]:
    """The first rounds, decided by the run's own policy and timed by its own clock, with no accuracy known."""
    stop, state, rounds = run.experiment.stop, State(), []
    while len(rounds) < min(num_rounds, stop.max_rounds) and state.clock_s < (stop.max_clock_s or math.inf):
        decision, planned = run.decide(state), run.plan(state)
        assert planned is not None  # no stop rule has fired
        work_s = run.simulation.work_s(state.history)
        timing = run.world.round_timing(planned.round, state.clock_s, planned.cohort, work_s)
        visits = run.num_visits[planned.cohort]
        sites, blocks, samples = np.zeros((3, len(run.ranks.hosts)), dtype=np.int64)
        for block, host in zip(planned.blocks, planned.block_hosts, strict=True):
            sites[host] += len(block)
            blocks[host] += 1
            samples[host] += visits[block].sum()
        clock_s = state.clock_s + timing.makespan_s
        num_candidates = len(decision.candidates.k) if decision.candidates else 0
        rounds.append(PlannedRound(planned, timing, num_candidates, sites, blocks, samples, clock_s))
        row = _row(planned, state.clock_s, clock_s, timing, work_s, visits, decision.candidates)
        state = State(planned.round, clock_s, state.history.appended(row))
    return rounds


def _row(
    planned: Plan,
    start_s: float,
    clock_s: float,
    timing: RoundTiming,
    work_s: np.ndarray,
    visits: np.ndarray,
    candidates: Candidates | None,
) -> RoundRow:
    """A row as far as policies look at it: without evaluation."""
    unknown = np.full(len(planned.cohort), math.nan)
    cohort = CohortRound(
        site=planned.cohort,
        num_samples=visits,
        power_fraction=unknown,
        seen_power_fraction=unknown,
        compute_s=timing.compute_s,
        comm_s=timing.comm_s,
        train_loss=unknown,
        train_wall_s=work_s[planned.cohort],  # until a round is measured, the model stands in
        status=timing.status,
    )
    known = {
        "round": planned.round,
        "clock_start_s": start_s,
        "clock_s": clock_s,
        "makespan_s": timing.makespan_s,
        "num_sites": len(planned.cohort),
        "voted_num_sites": candidates.vote if candidates else 0,
        "eval_seen": 0,
    }
    return RoundRow(
        **dict.fromkeys(columns(RoundRow), math.nan) | known, cohort=cohort, candidates=candidates
    )


def probe(run: Run) -> Speed:
    """Train a few batches of one block with the real engine here, and evaluate one; the first of each only warms up."""
    params, batch = run.initial_params, run.work.batch_size
    block = [int(site) for site in np.argsort(-run.num_visits, kind="stable")[: run.sites_per_block]]
    orders = [run.order(site, 1) for site in block]
    partial, compressor = PartialSum(len(params), 0, run.device), Compressor(run.experiment.compression, 0)

    def train(num_batches: int) -> tuple[int, float]:
        """(samples, seconds)."""
        sites = [SiteWork(s, o[: num_batches * batch]) for s, o in zip(block, orders, strict=True)]
        began = time.perf_counter()
        for update in run.engine.train(params, sites):
            # at full cost; what the update is does not matter here, not even whether it diverged
            usable = update.delta.nan_to_num(0, 0, 0).clamp(-1, 1)
            partial.add(compressor(update.site, 0, usable), 0.0)
        return sum(len(site.order) for site in sites), time.perf_counter() - began

    first = run.eval_batches[:1]
    train(1), evaluate(run.task, run.model, params, first)
    samples, seconds = train(2)
    longest = math.ceil(max(map(len, orders)) / batch)
    samples, seconds = train(min(longest, 2 + int(_PROBE_S * 2 / max(seconds, 1e-6))))
    began = time.perf_counter()
    seen = int(evaluate(run.task, run.model, params, first).values[1])
    where = f"measured here in {seconds:.1f} s, {run.engine_choice}, {run.device}"
    return Speed(samples / seconds, seen / (time.perf_counter() - began), where)


def wall_s(run: Run, rounds: list[PlannedRound], speed: Speed, bandwidth_bps: float) -> np.ndarray:
    """Predicted wall time of every round: the busiest host trains, the vectors are exchanged, the batches evaluated."""
    batches = math.ceil(len(run.eval_batches) / len(run.ranks.hosts))
    evaluation_s = batches * run.experiment.evaluate.batch_size / speed.evaluate_per_s
    return np.array(
        [
            r.samples.max() / speed.train_per_s
            + exchange_s(run, r.plan, bandwidth_bps)
            + r.plan.evaluate * evaluation_s
            for r in rounds
        ]
    )


def exchange_s(run: Run, planned: Plan, bandwidth_bps: float) -> float:
    """Predicted wall time of one exchange. A reduction and a broadcast of a long vector each send its bytes about twice
    over a rank's link, whatever the number of ranks (Rabenseifner's and van de Geijn's algorithms)."""
    sent = exchanged_bytes(run, planned)
    return 2 * 8 * (sent["up"] + sent["down"]) / bandwidth_bps


def exchanged_bytes(run: Run, planned: Plan) -> dict[str, int]:
    """Payload per rank and round: the int64 sum up, the float32 model down, the int64 counters, the plan (at most)."""
    if run.ranks.size == 1:
        return {"up": 0, "down": 0, "counters": 0, "plan": 0}
    num_params = len(run.initial_params)
    return {
        "up": 8 * (num_params + run.num_tail(len(planned.cohort))),
        "down": 4 * num_params,
        "counters": 8 * (3 + 2 * run.ranks.size),
        "plan": len(pickle.dumps((0, planned))),
    }


def memory_bytes(run: Run, planned: Plan) -> dict[str, int]:
    """Peak bytes of arrays that a rank holds, by what they are.

    model: 4 P each for the local copy, the old and the new global parameters; 8 P per slot of the server's optimiser;
    frozen parameters once, as all models of a rank share them.
    sum: the int64 vector 8 (P + T), a float64 and an int64 scratch vector of 8 P.
    engine: 4 P each for weights, gradients, update and, with momentum, velocity; the stacked engine holds S of each.
    data: training set, on a GPU its own copy, on CPUs one memory-mapped copy a node.
    residuals: 4 P for each of the host's sites that keeps one (the fullest host).
    aggregator: model, the received sum and its own of 8 (P + T), and two float64 vectors of 8 P in the server's step;
    while a checkpoint is written, the residuals of all sites.
    """
    p, t = len(run.initial_params), run.num_tail(len(planned.cohort))
    frozen = sum(q.numel() * q.element_size() for q in run.model.parameters() if not q.requires_grad)
    model = 12 * p + 8 * p * len(run.slots) + frozen
    copies = run.sites_per_block if run.engine.name == "stacked" else 1
    data = run.task.train.inputs.nbytes + run.task.train.labels.nbytes
    sites_at = np.zeros(1, dtype=np.int64) if run.fixed_hosts is None else np.bincount(run.fixed_hosts)
    return {
        "model": model,
        "sum": 8 * (p + t) + 16 * p,
        "engine": copies * 4 * p * (4 if run.work.momentum else 3),
        "data": data,
        "residuals": 4 * p * int(sites_at.max()),
        "aggregator": model + 16 * (p + t) + 16 * p + 4 * p * int(sites_at.sum()),
    }


def written_bytes(run: Run, rounds: list[PlannedRound]) -> dict[str, int]:
    """Sizes after max_rounds rounds like the last of `rounds`: 8 bytes a number.

    results: all rows and the table of sites, before compression, and what an empty file takes.
    checkpoint: all rows, 4 P of the model, 8 P per slot of the server's optimiser, and 4 P for each site that keeps a
    residual. There are two of them.
    """
    last, p = rounds[-1], len(run.initial_params)
    residuals = 4 * p * len(run.world) * run.experiment.compression.keeps_residual
    per_site, per_candidate = len(columns(CohortRound)) + 1, len(columns(Candidates)) + 1
    a_round = len(columns(RoundRow)) + per_site * len(last.plan.cohort) + per_candidate * last.num_candidates
    rows = 8 * run.experiment.stop.max_rounds * a_round
    return {
        "results": rows + 8 * 10 * len(run.world) + _EMPTY_FILE_BYTES,
        "checkpoint": rows + 4 * p + 8 * p * len(run.slots) + residuals,
    }


def warnings(run: Run, rounds: list[PlannedRound]) -> list[str]:
    """What is probably not meant, or worth knowing before the results are read."""
    e, num_hosts = run.experiment, len(run.ranks.hosts)
    found = []
    most = max(len(r.plan.blocks) for r in rounds)
    if num_hosts > most:
        found.append(
            f"{num_hosts} hosts, but at most {most} blocks a round here: {num_hosts - most} hosts idle; use fewer "
            f"ranks or a smaller engine.sites_per_block (now {run.sites_per_block})"
        )
    cores = os.cpu_count() or 1
    if run.ranks.size * e.ranks.threads > cores:
        found.append(
            f"{run.ranks.size} ranks of {e.ranks.threads} thread(s) on this machine's {cores} cores would share them"
        )
    sizes = np.array([len(shard) for shard in run.shards])
    if (small := int((sizes < run.work.batch_size).sum())) > 0:
        found.append(
            f"{small} of {len(sizes)} shards have fewer samples (least {sizes.min()}) than one batch of "
            f"{run.work.batch_size}"
        )
    target, chance = e.stop.target_accuracy, 1 / run.task.num_classes
    if target is None:
        found.append(f"no target accuracy: the run ends after max_rounds = {e.stop.max_rounds} at the latest")
    elif target <= 2 * chance:
        found.append(f"target accuracy {target:g} is near chance ({chance:.3g})")
    seen = sum(batch.stop - batch.start for batch in run.eval_batches)
    if seen < 1000:
        found.append(f"accuracy is read on {seen} samples: its steps are {1 / seen:.2g}, its noise more")
    if e.timing.compute == "measured":
        found.append('timing.compute = "measured": the simulated time depends on the machine')
    elif e.timing.seconds_per_sample == Timing().seconds_per_sample:
        found.append(
            f"timing.seconds_per_sample = {e.timing.seconds_per_sample:g} is our default: the paper does not state it"
        )
    if all((r.timing.status != Status.ARRIVED).all() for r in rounds):
        found.append(f"no update arrives in any of these rounds: faults.deadline_s = {e.faults.deadline_s}")
    if run.task.synthetic:
        found.append(f"the data are synthetic: {run.task.source}")
    if run.world.supply.synthetic:
        found.append(f"the power is synthetic: power.kind = {e.power.kind!r}")
    return found


def report(run: Run, rounds: list[PlannedRound], speed: Speed, bandwidth_bps: float) -> Group:
    """All of it, for a person."""
    e, last = run.experiment, rounds[-1]
    walls, bytes_, memory = (
        wall_s(run, rounds, speed, bandwidth_bps),
        exchanged_bytes(run, last.plan),
        memory_bytes(run, last.plan),
    )
    results, written = default_path(e.name, "TIME"), written_bytes(run, rounds)
    rest = max(0, e.stop.max_rounds - len(rounds))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts = {
        "scenario": f"{e.name}, seed {e.seed}: policy {e.policy.kind} over {len(run.world)} sites",
        "ranks": f"{run.ranks.size}: {len(run.ranks.hosts)} host(s)"
        + (", rank 0 is the aggregator" if run.ranks.size > 1 else " that is aggregator too"),
        "model": f"{len(run.initial_params):,} parameters",
        "exchange": f"per rank and round: {_size(bytes_['up'])} up, {_size(bytes_['down'])} down, "
        f"{_size(bytes_['counters'] + bytes_['plan'])} of counters and plan; "
        f"{exchange_s(run, last.plan, bandwidth_bps):.2g} s a round at {bandwidth_bps / 1e9:g} Gbit/s",
        "simulated WAN": f"updates of {run.updates}",
        "memory, a host": ", ".join(
            f"{name} {_size(memory[name])}"
            for name in ("model", "sum", "engine", "data", "residuals")
            if memory[name]
        )
        + f"; besides: activations, and the process itself (this one: {_size(own)})",
        "memory, aggregator": _size(memory["aggregator"]) if run.ranks.size > 1 else "as the host",
        "speed of a host": f"{speed.train_per_s:,.0f} samples/s trained"
        + (f", {speed.evaluate_per_s:,.0f} evaluated" if math.isfinite(speed.evaluate_per_s) else "")
        + f" ({speed.origin})",
        "wall time": f"{walls.sum():.1f} s for {len(rounds)} rounds, "
        f"{_duration(walls.sum() + rest * walls[-1])} for max_rounds = {e.stop.max_rounds}",
        "written": f"{results}: at most {_size(written['results'])} after max_rounds; "
        + (
            f"{' and '.join(checkpoints.SUFFIXES)} beside it: {_size(written['checkpoint'])} each; "
            if e.checkpoint.enabled
            else "no checkpoints; "
        )
        + f"prepared data in {cache_dir()}",
    }
    head = Table(show_header=False, box=None, pad_edge=False)
    head.add_column(style="dim", no_wrap=True)
    head.add_column(overflow="fold")
    for name, text in facts.items():
        head.add_row(name, Text(text))
    notes = [Text(f"! {warning}") for warning in warnings(run, rounds)]
    return Group(head, Text(), _rounds_table(rounds, walls), Text(), _hosts_table(run, last), Text(), *notes)


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
            str(r.plan.round),
            str(len(r.plan.cohort)),
            str(int((r.timing.status == Status.ARRIVED).sum())),
            str(len(r.plan.blocks)),
            f"{r.timing.makespan_s:.1f}",
            f"{r.clock_s / HOUR_S:.3f}",
            f"{busiest:,} samples",
            f"{1 - r.samples.mean() / busiest:.0%}" if busiest else "-",
            f"{seconds:.2f}",
        )
    return table


def _hosts_table(run: Run, last: PlannedRound) -> Table:
    """Hosts with the same load share a row: 40 hosts are a few rows."""
    title = f"placement in round {last.plan.round}: longest first onto the least loaded host"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("hosts", "blocks each", "sites each", "samples each"):
        table.add_column(name, justify="right")
    loads = np.stack([last.blocks, last.sites, last.samples], axis=1)
    kinds, counts = np.unique(loads, axis=0, return_counts=True)
    for (blocks, sites, samples), count in list(zip(kinds.tolist(), counts.tolist(), strict=True))[::-1]:
        table.add_row(str(count), str(blocks), str(sites), f"{samples:,}")
    return table


def _size(num_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}" if num_bytes < 1000 else f"{num_bytes:,.0f} {unit}"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600 else f"{seconds / HOUR_S:.2f} h"
