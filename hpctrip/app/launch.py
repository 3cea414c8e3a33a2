"""`run`: from an input to a results file, on whatever ranks there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch

from hpctrip.app.config import Input, Tables, resolve
from hpctrip.app.desk import Desk, Keeper
from hpctrip.app.experiment import Run, State, stopped
from hpctrip.app.loop import train
from hpctrip.app.progress import Progress
from hpctrip.app.resume import Start, state_of
from hpctrip.app.signals import Interruption, listening
from hpctrip.base.errors import InputError
from hpctrip.ranks.base import Ranks, hostname, together
from hpctrip.ranks.device import choose_device, hosts_kind
from hpctrip.ranks.memory import map_large_blocks
from hpctrip.ranks.open import open_ranks, with_transport
from hpctrip.ranks.watchdog import Limits, Watchdog
from hpctrip.record.checkpoint import Generations
from hpctrip.record.environment import environment
from hpctrip.record.writer import Recorder


def launch(begin: Callable[[], Start]) -> None:
    """Find out where to start, train, write the results file. Every rank calls it; rank 0 reports.

    `begin` is called at rank 0. Raises InputError for bad input (on rank 0; the other ranks end quietly),
    DivergedError, and InterruptedRun (everywhere in its quiet form) where the run is to be resumed.
    """
    with open_ranks() as first_ranks:
        begun: list[Start] = []  # stays at rank 0: a checkpoint's history is of no use elsewhere

        def announce() -> tuple[Tables, bool, bool]:
            begun.append(begin())
            return begun[0].tables, begun[0].checkpoint is not None, begun[0].finished

        tables, resumed, finished = first_ranks.lead(announce)
        if finished:
            for start in begun:
                print(f"{start.path} is finished already")
            return
        given = resolve(tables)
        experiment = given.experiment
        with (
            _watchdog(
                first_ranks, experiment.watchdog
            ),  # before the transport: hosts wait for each other there
            together(first_ranks, lambda: with_transport(first_ranks, experiment.ranks.transport)) as ranks,
            listening(experiment.interrupt.signals),
        ):
            torch.set_num_threads(experiment.ranks.threads)
            if ranks.rank not in ranks.hosts:
                map_large_blocks()
            ranks.lead(lambda: experiment.workload.prepare_data(experiment.seed))
            if ranks.local_host == 0:  # a cache on a node's own disk has to be filled there too
                experiment.workload.prepare_data(experiment.seed)
            device = choose_device(experiment.ranks.device, ranks)
            kind = hosts_kind(experiment.ranks.device, device, ranks)
            run = together(
                ranks,
                lambda: Run(experiment, experiment.workload.task(experiment.seed), ranks, device, kind),
            )
            params = run.initial_params  # equal everywhere: drawn from the seed
            if resumed:
                params, slots = ranks.lead(lambda: _fitting(run, begun[0]))
                params = params.to(run.device)
                run.slots.copy_(slots)
                if run.fixed_hosts is not None:
                    kept = _residuals(begun[0]) if begun else None
                    run.compressor.residuals = {
                        site: row.to(run.device)
                        for site, row in ranks.scatter_rows(
                            kept, np.array(ranks.hosts)[run.fixed_hosts]
                        ).items()
                    }
            hosts = ranks.gather((hostname(), _device_name(run.device)))
            descriptions = ranks.gather(run.engine.description)
            if not begun:
                _, params = train(run, State(), params, None)
                ranks.lead(partial(Desk.finish, None, None, params))
                return
            _lead(run, given, begun[0], hosts or [], descriptions or [], params)


def _lead(
    run: Run,
    given: Input,
    start: Start,
    hosts: list[tuple[str, str]],
    descriptions: list[str],
    params: torch.Tensor,
) -> None:
    """Rank 0's part from the first round on."""
    ranks, experiment, saved = run.ranks, run.experiment, start.checkpoint
    state = State() if saved is None else stopped(state_of(saved, experiment), experiment.stop)
    meta = _meta(run, given, ranks, hosts)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = saved.about if saved else {}
    nodes = ", ".join(dict.fromkeys(host for host, _ in hosts))
    about = {
        "created_utc": before.get("created_utc", now),
        "starts": [
            *before.get("starts", []),
            f"after round {state.round}: {now}, {ranks.size} rank(s) on {nodes}",
        ],
        "made_with": {
            name: str(meta[name]) for name in ("engine", "hpctrip_version", "torch_version", "numpy_version")
        }
        | {"devices": ", ".join(sorted({device for _, device in hosts[ranks.hosts.start :]}))},
    }
    meta |= {name: about[name] for name in ("created_utc", "starts")}
    files = Generations(start.path, start.source)
    if saved is None:
        files.clear()  # of the run that this one replaces
    keeper = Keeper(experiment.checkpoint, files, given.toml, about, state.round)
    interruption = Interruption(experiment.interrupt, start.path, [host for host, _ in hosts])
    with Progress(run, start.path) as progress:
        progress.say(f"hosts train {'; '.join(dict.fromkeys(descriptions[ranks.hosts.start :]))}")
        for note in (*start.notes, *_changes(before.get("made_with", {}), about["made_with"])):
            progress.say(note)
        recorder = Recorder(start.path, meta, _site_columns(run))
        desk = Desk(run, recorder, keeper, interruption, progress)
        try:
            state, params = train(run, state, params, desk)
        except BaseException as error:
            desk.failed(error)
            raise
        ranks.lead(partial(desk.finish, state, params))


def _watchdog(ranks: Ranks, limits: Limits) -> AbstractContextManager[object]:
    return Watchdog(ranks, limits, ranks.abort) if limits.enabled else nullcontext()


def _fitting(run: Run, start: Start) -> tuple[torch.Tensor, torch.Tensor]:
    """The checkpoint's parameters [P] and slots [num_slots, P]; InputError where the model has other shapes."""
    assert start.checkpoint is not None
    params, slots, residuals = start.checkpoint.params, start.checkpoint.slots, start.checkpoint.residuals
    way_out = "resume with the hpctrip that wrote it"
    if params.shape != run.initial_params.shape or slots.shape != tuple(run.slots.shape):
        raise InputError(
            str(start.source),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(run.initial_params.shape)} and {tuple(run.slots.shape)}",
            way_out,
        )
    for site, row in residuals.items():
        if not 0 <= site < len(run.shards) or row.shape != params.shape:
            raise InputError(
                str(start.source),
                f"holds a residual of {row.shape} for site {site}; the model has {params.shape} parameters, sites are "
                f"0 to {len(run.shards) - 1}",
                way_out,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)


def _residuals(start: Start) -> dict[int, torch.Tensor]:
    """The checkpoint's residuals [P] by site."""
    assert start.checkpoint is not None
    return {site: torch.from_numpy(row) for site, row in start.checkpoint.residuals.items()}


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            yield f"warning: {name} was {before[name]}, is {now[name]}: the last bits of the numbers may differ"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _meta(run: Run, given: Input, ranks: Ranks, hosts: list[tuple[str, str]]) -> dict[str, Any]:
    experiment = run.experiment
    target = experiment.stop.target_accuracy
    return {
        **environment(ranks.library),
        "input_toml": given.toml,
        "input_json": given.json,
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "target_accuracy": math.nan if target is None else target,
        "data_source": run.task.source,
        "synthetic_data": run.task.synthetic,
        "synthetic_power": run.world.supply.synthetic,
        "update_bytes": run.world.update_bytes,
        "compression": experiment.compression.kind,
        "payload_bytes": experiment.compression.payload_bytes(len(run.initial_params)),
        "num_params": len(run.initial_params),
        "num_ranks": ranks.size,
        "transport": ranks.name,
        "engine": run.engine.name,
        "hosts": [host for host, _ in hosts],
        "devices": [device for _, device in hosts],
    }


def _site_columns(run: Run) -> dict[str, tuple[np.ndarray, str, str]]:
    world = run.world
    columns = {
        "site": (np.arange(len(world)), "1", "site index"),
        "distance_m": (world.distance_m, "m", "distance to the aggregator d_i"),
        "bandwidth_bps": (world.bandwidth_bps, "bit/s", "WAN bandwidth B_i"),
        "delay_s": (world.delay_s, "s", "communication delay L_i of the site alone (Eq. 3)"),
        "num_samples": (
            np.array([len(shard) for shard in run.shards]),
            "samples",
            "samples of the site's shard",
        ),
        "compute_s": (
            run.experiment.timing.seconds_per_sample * run.num_visits,
            "s",
            "modelled compute time c_i of one round at full power",
        ),
        "power_fraction": (world.power_fraction(0.0), "1", "power fraction P_i at time 0"),
    }
    for name, values in world.supply.describe().items():
        columns[name] = (values, "1", f"{name.replace('_', ' ')} of the site's power trace")
    return columns
