"""`run`: from an input to a results file, on whatever ranks there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial

import numpy as np
import torch

from hpctrip.app.about import attributes, site_columns
from hpctrip.app.aggregator import Aggregator
from hpctrip.app.checkpointer import Checkpointer
from hpctrip.app.experiment import Input, resolve
from hpctrip.app.host import Host
from hpctrip.app.leader import Leader
from hpctrip.app.loop import train
from hpctrip.app.progress import Progress
from hpctrip.app.resume import Start, state_of
from hpctrip.app.signals import Interruption, listening
from hpctrip.base.errors import InputError
from hpctrip.base.inputs import Tables
from hpctrip.ranks.base import Ranks, hostname, together
from hpctrip.ranks.device import choose_device, hosts_kind
from hpctrip.ranks.memory import map_large_blocks
from hpctrip.ranks.open import open_ranks, with_transport
from hpctrip.ranks.watchdog import Limits, Watchdog
from hpctrip.record.checkpoint import Generations
from hpctrip.record.writer import Recorder
from hpctrip.sim.state import State


def launch(begin: Callable[[], Start]) -> None:
    """Find out where to start, train, write the results file. Every rank calls it; rank 0 reports.

    `begin` is called at rank 0. Raises InputError for bad input (on rank 0; the other ranks end quietly),
    DivergedError, and InterruptedRun (everywhere in its quiet form) where the run is to be resumed.
    """
    with open_ranks() as first_ranks:
        begun: list[Start] = []  # stays at rank 0: a checkpoint's history is of no use elsewhere

        def announce() -> tuple[Tables, Tables, bool, bool]:
            begun.append(begin())
            given = resolve(begun[0].tables)
            return given.tables, given.set_by_policy, begun[0].checkpoint is not None, begun[0].finished

        tables, set_by_policy, resumed, finished = first_ranks.lead(announce)
        if finished:
            for start in begun:
                print(f"{start.path} is finished already")
            return
        given = Input.of(tables, set_by_policy)
        experiment = given.experiment
        with (
            # the watchdog first: hosts wait for each other already where a transport is opened
            _watchdog(first_ranks, experiment.watchdog),
            together(first_ranks, lambda: with_transport(first_ranks, experiment.ranks.transport)) as ranks,
            listening(experiment.interrupt.signals),
        ):
            torch.set_num_threads(experiment.ranks.threads)
            if ranks.rank not in ranks.hosts:
                map_large_blocks()
            num_sites = ranks.lead(experiment.num_sites)
            ranks.lead(lambda: experiment.workload.prepare_data(experiment.seed))
            if ranks.local_host == 0:  # a cache on a node's own disk has to be filled there too
                experiment.workload.prepare_data(experiment.seed)
            device = choose_device(experiment.ranks.device, ranks)
            kind = hosts_kind(experiment.ranks.device, device, ranks)
            host = together(
                ranks,
                lambda: Host(
                    experiment,
                    num_sites,
                    experiment.workload.checked_task(experiment.seed),
                    ranks,
                    device,
                    kind,
                ),
            )
            params = host.initial_params
            if resumed:
                params = _restore(host, begun[0] if begun else None)
            names = ranks.gather((hostname(), _device_name(host.device)))
            descriptions = ranks.gather(host.engine.description)
            if not begun:
                _, params = train(host, State(), params, None)
                ranks.lead(partial(Leader.finish, None, None, params))
                return
            _lead(host, given, begun[0], names or [], descriptions or [], params)


def _lead(
    host: Host,
    given: Input,
    start: Start,
    hosts: list[tuple[str, str]],
    descriptions: list[str],
    params: torch.Tensor,
) -> None:
    """Rank 0's part from the first round on."""
    ranks, experiment, saved = host.ranks, host.experiment, start.checkpoint
    aggregator = Aggregator(host)
    state = State() if saved is None else state_of(saved, experiment)
    meta = attributes(aggregator, given, hosts)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = saved.about if saved else {}
    nodes = ", ".join(dict.fromkeys(name for name, _ in hosts))
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
    checkpointer = Checkpointer(experiment.checkpoint, files, given.toml, about, state.round)
    interruption = Interruption(experiment.interrupt, start.path, [name for name, _ in hosts])
    with Progress(aggregator, start.path) as progress:
        progress.say(f"hosts train {'; '.join(dict.fromkeys(descriptions[ranks.hosts.start :]))}")
        for note in (*start.notes, *_changes(before.get("made_with", {}), about["made_with"])):
            progress.say(note)
        recorder = Recorder(start.path, meta, site_columns(aggregator))
        leader = Leader(aggregator, recorder, checkpointer, interruption, progress)
        try:
            state, params = train(host, state, params, leader)
        except BaseException as error:
            leader.failed(error)
            raise
        ranks.lead(partial(leader.finish, state, params))


def _watchdog(ranks: Ranks, limits: Limits) -> AbstractContextManager[object]:
    return Watchdog(ranks, limits, ranks.abort) if limits.enabled else nullcontext()


def _restore(host: Host, start: Start | None) -> torch.Tensor:
    """Bring back what the checkpoint holds besides the state; returns the global model [P]. A collective; `start` is
    None but at rank 0."""
    ranks = host.ranks
    params, slots = ranks.lead(lambda: _fitting(host, start))
    host.slots.copy_(slots)
    if host.fixed_hosts is not None:
        kept = {site: torch.from_numpy(row) for site, row in start.checkpoint.kept.items()} if start else None
        rows = ranks.scatter_rows(kept, np.array(ranks.hosts)[host.fixed_hosts])
        host.memory.rows = {site: row.to(host.device) for site, row in rows.items()}
    return params.to(host.device)


def _fitting(host: Host, start: Start) -> tuple[torch.Tensor, torch.Tensor]:
    """The checkpoint's parameters [P] and slots [num_slots, P]; InputError where the model has other shapes."""
    assert start.checkpoint is not None
    params, slots, kept = start.checkpoint.params, start.checkpoint.slots, start.checkpoint.kept
    way_out = "resume with the hpctrip that wrote it"
    if params.shape != host.initial_params.shape or slots.shape != tuple(host.slots.shape):
        raise InputError(
            str(start.source),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(host.initial_params.shape)} and {tuple(host.slots.shape)}",
            way_out,
        )
    for site, row in kept.items():
        if not 0 <= site < host.num_sites or row.shape != (host.memory.length,):
            raise InputError(
                str(start.source),
                f"holds {row.shape} numbers kept by site {site}; a site keeps {host.memory.length}, sites are 0 to "
                f"{host.num_sites - 1}",
                way_out,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            yield f"warning: {name} was {before[name]}, is {now[name]}: the last bits of the numbers may differ"


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
