"""`run`: from an input to a results file, on whatever ranks there are."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import torch

from hpctrip.base import process
from hpctrip.base.errors import InputError
from hpctrip.base.io import BestEffortStream
from hpctrip.base.text import printable
from hpctrip.config.component import config_key
from hpctrip.config.inputs import Tables
from hpctrip.config.plugins import Extensions
from hpctrip.config.sources import Source, refuse_changed
from hpctrip.device.counters import machine
from hpctrip.device.meter import Meter, meter_ranks, open_meter
from hpctrip.device.recovery_log import leftovers
from hpctrip.device.settings import Applied, GpuSettings, SettingsProcess
from hpctrip.learn.params import digest
from hpctrip.learn.task import Task
from hpctrip.ranks.base import Ranks, build_collectively, choose_device, gpu_identity, hosts_kind
from hpctrip.ranks.launched import open_ranks, with_transport
from hpctrip.ranks.node import map_large_blocks
from hpctrip.ranks.watchdog.guardian import MEETING, READING, Guardian
from hpctrip.ranks.watchdog.watchdog import Watchdog
from hpctrip.record.checkpoint import Checkpointer
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.cache.learning_key import learning_key
from hpctrip.runner.cache.lookup import CacheLookup
from hpctrip.runner.callbacks import RunFacts
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.experiment import Experiment, Input
from hpctrip.runner.host import Host, agree, agree_on_blocks, restore
from hpctrip.runner.loop import Rank0, train
from hpctrip.runner.provenance import sources_of
from hpctrip.runner.resume import ResumePoint, Start
from hpctrip.runner.run_metadata import (
    RankFacts,
    changed_versions,
    machine_notes,
    metadata_of,
    site_columns,
)
from hpctrip.runner.signals import Interruption, Signals, stop_file
from hpctrip.sim.step import State

NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""numpy's defaults, under which hpctrip computes, whatever the calling program or a plug-in has set."""


def launch(begin: Callable[[], Start], guardian: Guardian | None = None, quiet: bool = False) -> str | None:
    """Run an input to its end and return the path of the results file at rank 0, None elsewhere. Every rank calls it.

    `begin` is called at rank 0 only: it reads the input and locks the results file. `guardian` watches the start and
    hands over to the watchdogs. Rank 0 reports, unless `quiet`. Raises InputError for bad input (at rank 0; the other
    ranks end quietly), DivergedError, and where the run has left early InterruptedRun if it can be resumed, else
    UnsavedRun (each everywhere in its quiet form).
    """
    guardian = guardian or Guardian()
    guardian.reach(MEETING)
    with open_ranks() as ranks, ExitStack() as until_over, np.errstate(**NUMPY_ERRORS):
        guardian.reach(READING)
        start, run_input = _read(ranks, begin, until_over)
        path = start.path if start else None
        if run_input is None:
            if path and not quiet:
                print(printable(f"{path} is finished already", 1000))
            return path
        # the watchdog first: hosts wait for each other already where a transport is opened
        limits = run_input.experiment.watchdog
        with Watchdog(ranks, limits, ranks.abort) if limits.enabled else nullcontext():
            guardian.over()
            rules = run_input.experiment.ranks
            transport = build_collectively(ranks, lambda: with_transport(ranks, rules.transport))
            handled = Signals(run_input.experiment.interrupt.signals, process.ends_with_run)
            with transport as connected, handled as signals:
                session = Session.build(connected, signals, run_input, start, until_over, quiet)
                point = session.find_resume_point()
                params = session.restore(point)
                session.train(point, params)
        return path


def _read(
    ranks: Ranks, begin: Callable[[], Start], until_over: ExitStack
) -> tuple[Start | None, Input | None]:
    """The start of the run, at rank 0 only, and its input at every rank; no input where the run is finished already.
    The lock of the results file is released by `until_over`."""
    begun: list[Start] = []  # stays at rank 0: other ranks have no use for a checkpoint's history

    def announce() -> tuple[Tables, Tables, Extensions, bool]:
        start = begin()
        begun.append(start)
        until_over.callback(start.lock.release)
        if not start.finished and (file := stop_file(start.path)).exists():
            raise InputError(str(file), "asks runs with this results file to stop", "remove it to run")
        run_input = start.run_input
        return run_input.tables, run_input.set_by_policy, run_input.extensions, start.finished

    tables, set_by_policy, extensions, finished = ranks.decide_on_root(announce)
    start = begun[0] if begun else None
    if finished:
        return start, None
    if start:
        return start, start.run_input
    extensions.run()  # the bytes that rank 0 has read and run
    return None, Input.of(tables, set_by_policy, extensions)


@dataclass(frozen=True)
class Session:
    """The parts of one run at one rank, built and ready to train. Shapes: P parameters."""

    run_input: Input
    """The merged input and what it means."""
    host: Host
    quiet: bool
    """Whether rank 0 reports nothing."""
    start: Start | None = None
    """How the run starts. This field and the following have values at rank 0 only."""
    aggregator: Aggregator | None = None
    everyone: tuple[RankFacts, ...] = ()
    """The facts of every rank."""
    sources: tuple[Source, ...] = ()
    """The files and data that the run reads."""
    notes: tuple[str, ...] = ()
    """Lines for the user about these sources."""

    @classmethod
    def build(
        cls,
        ranks: Ranks,
        signals: Signals,
        run_input: Input,
        start: Start | None,
        until_over: ExitStack,
        quiet: bool,
    ) -> Session:
        """Build the parts of the run; a collective. GPU settings are undone by `until_over`. Raises InputError where a
        resumed run would read other data than before, and where a part cannot be built."""
        experiment = run_input.experiment
        ranks.decide_on_root(lambda: experiment.check_outputs(start.path))
        host, aggregator, gpus = _parts(experiment, ranks, signals)
        agree_on_blocks(host)
        # settings that killed runs have left, before this run's own replace them
        left = [] if gpus is None else [str(note) for note in leftovers()]
        applied = apply_settings(gpus, experiment.knobs, until_over)
        everyone = ranks.gather(RankFacts.of(host, applied, left)) or ()

        sources, notes = ranks.decide_on_root(lambda: _sources(run_input, host.task, start))
        return cls(run_input, host, quiet, start, aggregator, tuple(everyone), tuple(sources), tuple(notes))

    def interruption(self, first_round: int) -> Interruption:
        """The reasons to leave early, for a start that goes on after round `first_round`; at rank 0."""
        hosts, rules = [rank.host for rank in self.everyone], self.run_input.experiment.interrupt
        return Interruption(rules, self.start.path, hosts, self.host.signals, first_round)

    @cached_property
    def learning_key(self) -> str:
        """The key of this run's training in the cache; at rank 0."""
        return learning_key(
            self.run_input, self.host, self.sources, [rank.arithmetic for rank in self.everyone]
        )

    def find_resume_point(self) -> ResumePoint | None:
        """The state and model from which the run goes on, after what the cache has of it; None but at rank 0. A
        collective."""

        def find() -> ResumePoint | None:
            start, aggregator = self.start, self.aggregator
            if start is None or aggregator is None:
                return None
            if self.run_input.experiment.store.path is None and start.earlier_run is None:
                return ResumePoint.of(start, aggregator.simulation)
            stop, no_signals = self.interruption(start.saved_round), [0] * len(self.everyone)
            return CacheLookup(
                aggregator,
                start,
                self.learning_key,
                leaves=lambda state: stop.request(no_signals) or stop.shortage(state.history, 0.0),
                say=lambda line: None if self.quiet else _say(line),
            ).resume_point()

        return build_collectively(self.host.ranks, find)

    def restore(self, point: ResumePoint | None) -> torch.Tensor:
        """Bring every host to the model of the resume point, or leave it at the initial one; its parameters [P]. A
        collective."""
        place = (self.start.checkpoint_file or self.run_input.experiment.store.path) if self.start else ""

        def is_saved() -> bool:
            checkpoint, constants = self.start.checkpoint, self.host.constants_digest
            if checkpoint and checkpoint.metadata.get("constants", constants) != constants:
                problem = f"gave other frozen parameters or constants than in the run of {place}"
                model = self.run_input.experiment.workload.model_place
                raise InputError(model, problem, "resume it with the same files")
            return point.model is not None

        if not self.host.ranks.decide_on_root(is_saved):
            return self.host.initial_params
        return restore(self.host, point and point.model, place)

    def train(self, point: ResumePoint | None, params: torch.Tensor) -> None:
        """Train from the resume point with the model [P] to the end; rank 0 writes the files and reports."""
        if point is not None:
            with closing(point.cache) if point.cache else nullcontext():
                self._lead(point, params)
        else:
            train(self.host, State(), params, None)
            self.host.ranks.decide_on_root(partial(Rank0.finish, None, None, ""))

    def _lead(self, point: ResumePoint, params: torch.Tensor) -> None:
        """Rank 0's part from the first round on."""
        from hpctrip.runner.progress import Progress  # heavy

        aggregator, start, experiment = self.aggregator, self.start, self.run_input.experiment
        assert aggregator is not None and start is not None
        state, everyone = point.state, self.everyone
        before = start.checkpoint.metadata if start.checkpoint else {}
        attributes, metadata = metadata_of(
            aggregator, self.run_input, everyone, self.sources, state.history, before, self.learning_key
        )
        saved = start.saved_round, start.checkpoint_file
        checkpointer = Checkpointer(experiment.checkpoint, start.path, self.run_input.toml, metadata, *saved)
        interruption = self.interruption(state.round)
        with Progress(aggregator, start.path, state.history, self.quiet) as progress:
            engines = dict.fromkeys(rank.engine for rank in everyone[aggregator.ranks.hosts.start :])
            for line in (
                _model(self.run_input, self.host.num_params),
                f"hosts train {'; '.join(engines)}",
                start.lock.note,
                *interruption.notes,
                *start.notes,
                *self.notes,
                *machine_notes(everyone),
                *changed_versions(before, metadata),
                *point.notes,
            ):
                if line:
                    progress.say(line)
            facts = RunFacts(
                experiment.name,
                Path(start.path).resolve(),
                metadata["created_utc"],
                json.loads(self.run_input.json),
                state.history.rows,
                tuple(rank.host for rank in everyone),
            )
            rank0 = Rank0(
                aggregator,
                Recorder(start.path, attributes, site_columns(aggregator)),
                checkpointer,
                interruption,
                progress,
                Callbacks(experiment.callbacks, facts, progress.say, phase=aggregator.ranks.phase),
                point.cache,
            )
            try:
                state, params = train(self.host, state, params, rank0)
            except BaseException as error:
                rank0.failed(error)
                raise
            params_digest = digest(params) if point.params_digest is None else point.params_digest
            aggregator.ranks.decide_on_root(partial(rank0.finish, state, params_digest))


def _sources(run_input: Input, task: Task, start: Start) -> tuple[list[Source], list[str]]:
    """The sources of a run, and notes for the user. Raises InputError where they are not those of its earlier part."""
    sources = sources_of(run_input, task)
    place = start.checkpoint_file or (start.earlier_run and start.earlier_run.path)
    return sources, refuse_changed(start.recorded_sources, sources, place)


def _say(line: str) -> None:
    """Print a line. The run goes on if the output breaks."""
    print(printable(line, 1000), file=BestEffortStream(sys.stdout), flush=True)


def _parts(
    experiment: Experiment, ranks: Ranks, signals: Signals
) -> tuple[Host, Aggregator | None, list[str] | None]:
    """This rank's parts of the experiment, at rank 0 the aggregator too, and the GPUs that it is in charge of
    (`local_gpus`). A collective; errors are raised at all ranks together."""
    torch.set_num_threads(experiment.ranks.threads)
    if ranks.rank not in ranks.hosts:
        map_large_blocks()
    num_sites = ranks.decide_on_root(experiment.num_sites)
    ranks.decide_on_root(experiment.check_callbacks)
    ranks.decide_on_root(lambda: experiment.workload.prepare_data(experiment.seed))
    prepared_on = ranks.decide_on_root(machine)
    if ranks.local_host == 0 and machine() != prepared_on:  # a cache on a node's own disk is filled there too
        experiment.workload.prepare_data(experiment.seed)
    device = choose_device(experiment.ranks.device, ranks)
    kind = hosts_kind(experiment.ranks.device, device, ranks)
    num_machines, gpus = local_gpus(ranks, device)

    task = build_collectively(ranks, lambda: experiment.workload.checked_task(experiment.seed))
    digests, place = ranks.gather(dict(task.digests)), config_key("workload", experiment.workload)
    ranks.decide_on_root(lambda: _refuse_other_data(digests or [], place))

    def build() -> tuple[Host, Aggregator | None, list[str] | None]:
        # the meter is opened after the data are prepared: counters wrap around when they are not read for long
        meter = Meter() if gpus is None else open_meter(experiment.meter, gpus)
        host = Host(experiment, num_sites, task, ranks, device, kind, meter, signals)
        aggregator = Aggregator(host, num_machines) if ranks.is_aggregator else None
        return host, aggregator, gpus

    host, aggregator, gpus = build_collectively(ranks, build)
    agree(host)
    return host, aggregator, gpus


def _refuse_other_data(digests: Sequence[Mapping[str, str]], place: str) -> None:
    """Raise InputError where the data of a rank, whose digests are those of its task, are not those of rank 0."""
    for rank, own in enumerate(digests):
        if own != digests[0]:
            problem = f"gives rank {rank} other data than rank 0: hosts would test on what others train on"
            raise InputError(place, problem, "seed all that it draws, and give all machines the same files")


def local_gpus(ranks: Ranks, device: torch.device) -> tuple[int, list[str] | None]:
    """(number of machines of the run, the GPUs that train on this rank's machine, by their UUIDs). One rank of each
    machine reads the counters and applies the settings; at the others the GPUs are None. `device` is that of this rank.
    A collective."""
    mine = machine(), gpu_identity(device)
    gathered = ranks.gather(mine)
    everyone = ranks.decide_on_root(lambda: gathered)
    in_charge = meter_ranks([name for name, _ in everyone], ranks.hosts)
    gpus = sorted({gpu for name, gpu in everyone if name == mine[0] and gpu})
    return len(in_charge), gpus if ranks.rank in in_charge else None


def apply_settings(gpus: list[str] | None, settings: GpuSettings, until: ExitStack) -> Applied:
    """Apply settings to the GPUs of this machine (`local_gpus`); closing `until` restores the previous ones."""
    if gpus is None or not settings.any:
        return Applied()
    if not gpus:
        return Applied(refused=("no GPU trains here",))
    return until.enter_context(SettingsProcess(gpus)).apply(settings)


def _model(run_input: Input, num_params: int) -> str:
    """The model and the plug-ins of a run, in one line."""
    workload = run_input.experiment.workload
    plugins = ", ".join(plugin.path for plugin in run_input.extensions.plugins)
    name = getattr(workload, "model", None) or workload.kind
    return f"model: {name}, {num_params:,} parameters{f'; plug-ins: {plugins}' if plugins else ''}"
