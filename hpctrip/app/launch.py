"""`run`: from an input to a results file, on whatever ranks there are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Self

import torch

from hpctrip.app.about import RankFacts, attributes, site_columns, told
from hpctrip.app.aggregator import Aggregator
from hpctrip.app.callbacks import RunFacts
from hpctrip.app.callbacks.calls import Callbacks
from hpctrip.app.checkpointer import Checkpointer
from hpctrip.app.experiment import Experiment, Input
from hpctrip.app.follow import Followed, Follower
from hpctrip.app.host import Host
from hpctrip.app.learning import learning_key
from hpctrip.app.loop import train
from hpctrip.app.metering import LocalMachine
from hpctrip.app.progress import Progress
from hpctrip.app.rank0 import Rank0
from hpctrip.app.resume import Start, restore
from hpctrip.app.signals import Interruption, listening
from hpctrip.app.sources import sources_of
from hpctrip.base.inputs import Tables
from hpctrip.base.plugins import Extensions
from hpctrip.base.sources import Source, refuse_changed
from hpctrip.base.text import printable
from hpctrip.learn.params import digest, layout
from hpctrip.ranks.base import Ranks, build_collectively
from hpctrip.ranks.device import choose_device, hosts_kind
from hpctrip.ranks.node import map_large_blocks
from hpctrip.ranks.open import open_ranks, with_transport
from hpctrip.ranks.watchdog.guardian import MEETING, READING, Guardian
from hpctrip.ranks.watchdog.watchdog import Limits, Watchdog
from hpctrip.record.checkpoint import Generations
from hpctrip.record.writer import Recorder
from hpctrip.sim.step import State


def launch(
    begin: Callable[[], Start],
    guardian: Guardian | None = None,
    quiet: bool = False,
    watch: Callable[[State], None] | None = None,
) -> str | None:
    """Find out where to start, train, write the results file: its path at rank 0, None elsewhere. Every rank calls it;
    rank 0 reports, unless `quiet`, and calls `watch` after every round.

    `begin` is called at rank 0; `guardian` leaves as soon as the watchdogs watch. Raises InputError for bad input (on
    rank 0; the other ranks end quietly), DivergedError, and InterruptedRun (everywhere in its quiet form) where the run
    is to be resumed.
    """
    guardian = guardian or Guardian()
    guardian.reach(MEETING)
    with open_ranks() as ranks, ExitStack() as until_over:
        guardian.reach(READING)
        begun: list[Start] = []  # stays at rank 0: a checkpoint's history is of no use elsewhere

        def announce() -> tuple[Tables, Tables, Extensions, bool]:
            start = begin()
            begun.append(start)
            until_over.callback(start.lock.release)
            given = start.given
            return given.tables, given.set_by_policy, given.extensions, start.finished

        tables, set_by_policy, extensions, finished = ranks.decide_on_root(announce)
        path = begun[0].path if begun else None
        if finished:
            if path and not quiet:
                print(printable(f"{path} is finished already", 1000))
            return path
        if begun:
            given = begun[0].given
        else:
            extensions.run()  # what rank 0 has read and run
            given = Input.of(tables, set_by_policy, extensions)
        # the watchdog first: hosts wait for each other already where a transport is opened
        with _watchdog(ranks, given.experiment.watchdog):
            guardian.over()
            _run(given, ranks, begun, quiet, watch, until_over)
        return path


def _run(
    given: Input,
    first_ranks: Ranks,
    begun: list[Start],
    quiet: bool,
    watch: Callable[[State], None] | None,
    until_over: ExitStack,
) -> None:
    """Train what is given. `begun` holds rank 0's start, and nothing elsewhere; `until_over` ends with the run."""
    experiment = given.experiment
    with (
        build_collectively(
            first_ranks, lambda: with_transport(first_ranks, experiment.ranks.transport)
        ) as ranks,
        listening(experiment.interrupt.signals),
    ):
        ranks.decide_on_root(lambda: experiment.check_outputs(begun[0].path))
        host, aggregator, machine = _parts(experiment, ranks)
        left = machine.left_behind()  # before this run's own settings take it over
        applied = machine.apply(experiment.knobs, until_over)
        everyone = ranks.gather(RankFacts.of(host, applied, left))
        read = ranks.decide_on_root(lambda: _read(given, host, begun[0]))
        leads: list[_Lead] = []  # at rank 0 alone, as `begun`

        def follow() -> bool:
            assert aggregator is not None
            leads.append(_Lead.of(aggregator, given, begun[0], everyone or [], read, quiet))
            return leads[0].followed.model is not None

        is_restored = ranks.decide_on_root(follow)
        model = leads[0].followed.model if leads else None
        place = (begun[0].source or experiment.store.path) if begun else ""
        params = restore(host, model, place) if is_restored else host.initial_params
        if aggregator is None:
            train(host, State(), params, None)
            ranks.decide_on_root(partial(Rank0.finish, None, None, ""))
            return
        with closing(leads[0].followed.filler):
            _lead(leads[0], params, partial(Progress, quiet=quiet, watch=watch))


def _parts(experiment: Experiment, ranks: Ranks) -> tuple[Host, Aggregator | None, LocalMachine]:
    """This rank's parts of the experiment, at rank 0 the aggregator too, and its machine. A collective; errors are
    raised at all ranks together."""
    torch.set_num_threads(experiment.ranks.threads)
    if ranks.rank not in ranks.hosts:
        map_large_blocks()
    num_sites = ranks.decide_on_root(experiment.num_sites)
    ranks.decide_on_root(experiment.check_callbacks)
    ranks.decide_on_root(lambda: experiment.workload.prepare_data(experiment.seed))
    if ranks.local_host == 0:  # a cache on a node's own disk has to be filled there too
        experiment.workload.prepare_data(experiment.seed)
    device = choose_device(experiment.ranks.device, ranks)
    kind = hosts_kind(experiment.ranks.device, device, ranks)
    machine = LocalMachine.of(ranks, device)

    def build() -> tuple[Host, Aggregator | None, LocalMachine]:
        task = experiment.workload.checked_task(experiment.seed)
        # the meter is opened after the data are prepared: counters wrap around when they are not read for long
        host = Host(experiment, num_sites, task, ranks, device, kind, machine.energy(experiment.meter))
        return host, Aggregator(host) if ranks.is_aggregator else None, machine

    return build_collectively(ranks, build)


@dataclass(frozen=True)
class _Read:
    """What the run reads, and what is to be said of it."""

    sources: list[Source]
    notes: list[str]


def _read(given: Input, host: Host, start: Start) -> _Read:
    """Raises InputError where a run that goes on would read something else than before."""
    sources = sources_of(given, host.task)
    place = start.source or (start.known and start.known.path)
    return _Read(sources, refuse_changed(start.read, sources, place))


@dataclass(frozen=True)
class _Lead:
    """What rank 0 has before the first round."""

    aggregator: Aggregator
    given: Input
    start: Start
    everyone: list[RankFacts]
    """The facts of every rank."""
    read: _Read
    learning_key: str
    interruption: Interruption
    followed: Followed

    @classmethod
    def of(
        cls,
        aggregator: Aggregator,
        given: Input,
        start: Start,
        everyone: list[RankFacts],
        read: _Read,
        quiet: bool,
    ) -> Self:
        """With what is known of the run already."""
        key = learning_key(given, aggregator.host, read.sources, [rank.arithmetic for rank in everyone])
        interruption = Interruption(given.experiment.interrupt, start.path, [rank.host for rank in everyone])
        followed = Follower(
            aggregator,
            start,
            key,
            leaves=lambda state: interruption.reason([0] * len(everyone), state.history, 0.0),
            say=lambda line: None if quiet else print(printable(line, 1000), flush=True),
        ).follow()
        return cls(aggregator, given, start, everyone, read, key, interruption, followed)


def _lead(lead: _Lead, params: torch.Tensor, reports: Callable[..., Progress]) -> None:
    """Rank 0's part from the first round on."""
    aggregator, given, start, everyone = lead.aggregator, lead.given, lead.start, lead.everyone
    ranks, experiment, saved, followed = (
        aggregator.ranks,
        aggregator.experiment,
        start.checkpoint,
        lead.followed,
    )
    state, key = followed.state, lead.learning_key
    meta = attributes(aggregator, given, everyone)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    before = saved.about if saved else {}
    nodes = ", ".join(dict.fromkeys(rank.host for rank in everyone))
    hosts = everyone[ranks.hosts.start :]
    about = {
        "created_utc": before.get("created_utc", now),
        "starts": [
            *before.get("starts", []),
            f"after round {state.round}: {now}, {ranks.size} rank(s) on {nodes}",
        ],
        "sources": list(map(str, lead.read.sources)),
        "parameters": layout(aggregator.host.model),
        "made_with": {
            name: str(meta[name]) for name in ("engine", "hpctrip_version", "torch_version", "numpy_version")
        }
        | {
            "devices": ", ".join(sorted({rank.device for rank in hosts})),
            "packages": ", ".join(meta["packages"]) or "none",
        },
        # of all rounds: no one key, where the first ones were trained with something else
        "learning_key": key if saved is None or before.get("learning_key") == key else "",
    }
    meta |= {name: about[name] for name in ("created_utc", "starts", "sources", "learning_key")}
    meta["stored_rounds"] = sum(row.wall_s == 0 for row in state.history.rows)
    files = Generations(start.path, start.source)
    if start.source is None:
        files.clear()  # of the run that this one replaces
    on_disk = saved.round if saved else 0
    checkpointer = Checkpointer(experiment.checkpoint, files, given.toml, about, on_disk)
    with reports(aggregator, start.path, state.history) as progress:
        progress.say(f"hosts train {'; '.join(dict.fromkeys(rank.engine for rank in hosts))}")
        changes = _changes(before.get("made_with", {}), about["made_with"])
        for note in filter(
            None,
            (start.lock.note, *start.notes, *lead.read.notes, *told(everyone), *changes, *followed.notes),
        ):
            progress.say(note)
        recorder = Recorder(start.path, meta, site_columns(aggregator))
        facts = RunFacts(
            experiment.name,
            Path(start.path).resolve(),
            about["created_utc"],
            json.loads(given.json),
            state.history.rows,
            tuple(rank.host for rank in everyone),
        )
        callbacks = Callbacks(experiment.callbacks, facts, progress.say)
        rank0 = Rank0(
            aggregator, recorder, checkpointer, lead.interruption, progress, callbacks, followed.filler
        )
        try:
            state, params = train(aggregator.host, state, params, rank0)
        except BaseException as error:
            rank0.failed(error)
            raise
        known = followed.params_digest
        ranks.decide_on_root(partial(rank0.finish, state, digest(params) if known is None else known))


def _watchdog(ranks: Ranks, limits: Limits) -> AbstractContextManager[object]:
    return Watchdog(ranks, limits, ranks.abort) if limits.enabled else nullcontext()


def _changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in before.keys() & now.keys():
        if before[name] != now[name]:
            yield f"warning: {name} was {before[name]}, is {now[name]}: the last bits of the numbers may differ"
