"""A run from its input to its results file, on whatever ranks there are: read, connect, build, resume, train, close.

`launch` takes these steps in this order; each is a function below. Every rank takes them together; rank 0 alone reads,
decides and writes. What they hand on: a `Start` (the input, and the files of rank 0), a `Session` (the parts that are
built from it), a `ResumePoint` (the state and the model), and the `Results` (what rank 0 writes).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hpctrip.base import process
from hpctrip.base.errors import InputError
from hpctrip.base.io import BestEffortStream, refuse_inputs
from hpctrip.base.text import printable
from hpctrip.config.component import config_key
from hpctrip.config.sources import Source, named_files, refuse_changed
from hpctrip.device.counters import machine
from hpctrip.device.meter import Meter, meter_ranks, open_meter
from hpctrip.device.recovery_log import leftovers
from hpctrip.device.settings import Applied, holding
from hpctrip.learn.params import digest
from hpctrip.learn.task import Task
from hpctrip.ranks.base import Ranks, build_collectively, choose_device, gpu_identity, hostname, hosts_kind
from hpctrip.ranks.transport import open_ranks, with_transport
from hpctrip.ranks.watchdog.guardian import MEETING, READING, Guardian
from hpctrip.ranks.watchdog.watchdog import Watchdog
from hpctrip.record.checkpoint import Checkpoint, Checkpointer, generations
from hpctrip.record.lock import OutputLock, check_name, default_path, locked
from hpctrip.record.reader import Run
from hpctrip.record.writer import Recorder
from hpctrip.runner.aggregator import Aggregator
from hpctrip.runner.cache.lookup import CacheLookup
from hpctrip.runner.callbacks import RunFacts
from hpctrip.runner.callbacks.base import Callbacks
from hpctrip.runner.experiment import Experiment, Input, read_input
from hpctrip.runner.host import Host
from hpctrip.runner.job_status import StatusFile
from hpctrip.runner.loop import Results, ResumePoint, state_of, train
from hpctrip.runner.provenance import (
    RankFacts,
    changed_versions,
    learning_key,
    machine_notes,
    metadata_of,
    site_columns,
    sources_of,
)
from hpctrip.runner.signals import Interruption, Signals, refuse_left_over
from hpctrip.sim.step import State

NUMPY_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
"""numpy's defaults, under which hpctrip computes, whatever the calling program or a plug-in has set."""


def launch(
    begin: Callable[[], Start],
    guardian: Guardian | None = None,
    quiet: bool = False,
    status: StatusFile | None = None,
) -> str | None:
    """Run an input to its end and return the path of the results file at rank 0, None elsewhere. Every rank calls it.

    `begin` is called at rank 0 only: `start_new`, or a function of `runner/resume.py`. `guardian` watches the start and
    hands over to the watchdogs. Rank 0 reports, unless `quiet`, and keeps `status`. Raises InputError for bad input (at
    rank 0; the other ranks end quietly), DivergedError, and where the run has left early InterruptedRun if it can be
    resumed, else UnsavedRun (each everywhere in its quiet form).
    """
    guardian, status = guardian or Guardian(), status or StatusFile(None)
    guardian.reach(MEETING)
    with open_ranks() as ranks, ExitStack() as until_over, np.errstate(**NUMPY_ERRORS):
        until_over.enter_context(status.until_over(ranks.rank))
        guardian.reach(READING)
        start = read(ranks, begin, until_over)
        if start is None or start.finished:
            if start and not quiet:
                print(printable(f"{start.path} is finished already", 1000))
            return start and start.path
        if ranks.is_aggregator:
            status.begin()
        with connect(ranks, start.run_input.experiment, guardian) as (connected, signals):
            session = build(start, connected, signals, quiet, until_over)
            point, params = find_resume_point(session, until_over)
            results = open_results(session, point, until_over, status) if connected.is_aggregator else None
            state, params = train(session.host, point.state, params, results, signals)
            close(session, results, state, params, point.params_digest)
        return start.path or None


@dataclass(frozen=True, eq=False)
class Start:
    """The input of a run and, at rank 0, its results file, the lock on it, and the checkpoint to resume from."""

    run_input: Input
    """The merged input and what it means."""
    path: str = ""
    """The results file. This field and the following have values at rank 0 only."""
    lock: OutputLock | None = None
    """Lock on the results file; the caller releases it at the end of the run."""
    checkpoint: Checkpoint | None = None
    """The checkpoint to resume from; None: the run starts with round 1."""
    checkpoint_file: Path | None = None
    """The file of `checkpoint`."""
    recorded_sources: tuple[Source, ...] = ()
    """Sources recorded in the checkpoint or results file from which the run starts."""
    notes: tuple[str, ...] = ()
    """Lines for the user."""
    earlier_run: Run | None = None
    """A finished run with the same training input; rounds in common with it are not trained again."""
    finished: bool = False
    """Whether the run has ended before and nothing is left to do."""


def start_new(
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    overwrite: bool,
    plugins: Iterable[str] = (),
) -> Start:
    """Start a new run. Raises InputError for bad input, and where an output file exists and `overwrite` is false."""
    check_name(out)
    run_input = read_input(paths := list(paths), overrides, plugins)
    path = out or default_path(run_input.experiment.name)
    named = [file.value for file in named_files(run_input.experiment)]
    refuse_inputs([path, *generations(path)], [*paths, *named])
    with locked(path, overwrite) as lock:
        return Start(run_input, path, lock)


def read(ranks: Ranks, begin: Callable[[], Start], until_over: ExitStack) -> Start | None:
    """Read the input and lock the results file at rank 0, and tell the other ranks the input; None there where the run
    is finished already. The lock is released by `until_over`. A collective."""
    start: Start | None = None  # stays at rank 0: other ranks have no use for a checkpoint's history

    def announce() -> tuple | None:
        nonlocal start
        start = begin()
        until_over.callback(start.lock.release)
        if start.finished:
            return None
        refuse_left_over(start.path)
        return start.run_input.tables, start.run_input.set_by_policy, start.run_input.extensions

    announced = ranks.decide_on_root(announce)
    if ranks.is_aggregator or announced is None:
        return start
    tables, set_by_policy, extensions = announced
    extensions.run()  # the bytes that rank 0 has read and run
    return Start(Input.of(tables, set_by_policy, extensions))


@contextmanager
def connect(ranks: Ranks, experiment: Experiment, guardian: Guardian) -> Iterator[tuple[Ranks, Signals]]:
    """A context with the ranks over the transport that the input names, and the signals of this rank. A collective."""
    limits, interrupt = experiment.watchdog, experiment.interrupt
    # the watchdog first: hosts wait for each other already where a transport is opened
    with Watchdog(ranks, limits, ranks.abort) if limits.enabled else nullcontext():
        guardian.over()
        transport = build_collectively(ranks, lambda: with_transport(ranks, experiment.ranks.transport))
        with transport as connected, Signals(interrupt.signals, process.ends_with_run) as signals:
            yield connected, signals


@dataclass(frozen=True)
class Session:
    """The parts of one run at one rank, built and ready to train."""

    start: Start
    host: Host
    signals: Signals
    quiet: bool
    """Whether rank 0 reports nothing."""
    aggregator: Aggregator | None
    """This field and the following have values at rank 0 only."""
    everyone: Sequence[RankFacts]
    """The facts of every rank."""
    sources: Sequence[Source]
    """The files and data that the run reads."""
    notes: Sequence[str]
    """Lines for the user about these sources."""
    learning_key: str
    """The key of this run's training in the cache."""

    def interruption(self, first_round: int) -> Interruption:
        """The reasons to leave early, for a start that has to come beyond `first_round`; at rank 0."""
        hosts, rules = [rank.host for rank in self.everyone], self.start.run_input.experiment.interrupt
        return Interruption(rules, self.start.path, hosts, self.signals, first_round)

    def say(self, line: str) -> None:
        """Print a line before there is a `Progress`. The run goes on if the output breaks."""
        process.log(line)
        if not self.quiet:
            print(printable(line, 1000), file=BestEffortStream(sys.stdout), flush=True)


def build(start: Start, ranks: Ranks, signals: Signals, quiet: bool, until_over: ExitStack) -> Session:
    """Build the parts of the run; a collective. GPU settings are undone by `until_over`. Raises InputError, at all
    ranks together, where a part cannot be built, and where a resumed run would read other data than before."""
    run_input, experiment = start.run_input, start.run_input.experiment
    torch.set_num_threads(experiment.ranks.threads)
    process.set_up_malloc(trains=ranks.rank in ranks.hosts)

    def checked() -> int:
        experiment.check_run(start.path)
        num_sites = experiment.checked_num_sites()
        experiment.check_callbacks()
        return num_sites

    num_sites = ranks.decide_on_root(checked)
    prepare_data(experiment, ranks)
    device = choose_device(experiment.ranks.device, ranks)
    kind = hosts_kind(experiment.ranks.device, device, ranks)
    num_machines, gpus = local_gpus(ranks, device)
    task = load_data(experiment, ranks)

    def parts() -> tuple[Host, Aggregator | None]:
        # the meter is opened after the data are prepared: counters wrap around when they are not read for long
        meter = Meter() if gpus is None else open_meter(experiment.meter, gpus)
        host = Host(experiment, num_sites, task, ranks, device, kind, meter)
        return host, Aggregator(host, num_machines) if ranks.is_aggregator else None

    host, aggregator = build_collectively(ranks, parts)
    host.agree()
    # settings that killed runs have left, before this run's own replace them
    left = [] if gpus is None else [str(note) for note in leftovers()]
    applied = Applied() if gpus is None else until_over.enter_context(holding(experiment.knobs, gpus))
    everyone = ranks.gather(RankFacts.of(host, applied, left)) or []
    cores = ranks.gather(len(os.sched_getaffinity(0))) or []

    def identified() -> tuple[list[Source], list[str], str]:
        sources = sources_of(run_input, task)
        place = start.checkpoint_file or (start.earlier_run and start.earlier_run.path)
        notes = refuse_changed(start.recorded_sources, sources, place)
        of_hosts = [cores[rank] for rank in ranks.hosts]
        notes += [f"warning: {text}" for text in (*run_input.warnings, *experiment.ranks.warnings(of_hosts))]
        return sources, notes, learning_key(run_input, host, sources, [rank.arithmetic for rank in everyone])

    return Session(start, host, signals, quiet, aggregator, everyone, *ranks.decide_on_root(identified))


def prepare_data(experiment: Experiment, ranks: Ranks) -> None:
    """Prepare the data at rank 0, then on every other machine whose cache is on its own disk. A collective."""

    def prepare() -> str:
        experiment.workload.prepare_data(experiment.seed)
        return machine()

    prepared_on = ranks.decide_on_root(prepare)
    if ranks.local_host == 0 and machine() != prepared_on:
        experiment.workload.prepare_data(experiment.seed)


def load_data(experiment: Experiment, ranks: Ranks) -> Task:
    """The task with its samples. A collective. Raises InputError where a rank has other data than rank 0."""
    task = build_collectively(ranks, lambda: experiment.workload.checked_task(experiment.seed))
    digests, place = ranks.gather(dict(task.digests)) or [], config_key("workload", experiment.workload)

    def refuse_other_data() -> None:
        for rank, own in enumerate(digests):
            if own != digests[0]:
                problem = (
                    f"gives rank {rank} other data than rank 0: hosts would test on what others train on"
                )
                hint = "seed all that it draws, and give all machines the same files"
                raise InputError(place, problem, hint)

    ranks.decide_on_root(refuse_other_data)
    return task


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


def find_resume_point(session: Session, until_over: ExitStack) -> tuple[ResumePoint, torch.Tensor]:
    """The point from which the run goes on, valid at rank 0: the first round or the one after the checkpoint, and then
    after what the cache has of it. Also the model there [P + B], at every rank. A collective. The locks of the cache
    are released by `until_over`."""
    start, host, aggregator = session.start, session.host, session.aggregator
    experiment, saved = start.run_input.experiment, start.checkpoint

    def find() -> ResumePoint:
        if aggregator is None:
            return ResumePoint(State(), None)
        simulation = aggregator.simulation
        state = simulation.judged(simulation.completed(state_of(saved, experiment)) if saved else State())
        point = ResumePoint(state, saved and saved.model)
        if experiment.store.path is None and start.earlier_run is None:
            return point
        stop, no_signals = session.interruption(state.round), [0] * len(session.everyone)
        return CacheLookup(
            aggregator,
            session.learning_key,
            saved,
            start.earlier_run,
            leaves=lambda state: stop.request(no_signals) or stop.shortage(state.history, 0.0),
            say=session.say,
        ).after(point)

    point = build_collectively(host.ranks, find)
    if point.cache:
        until_over.callback(point.cache.close)
    place = start.checkpoint_file or experiment.store.path

    def has_model() -> bool:
        constants = host.constants_digest
        if saved and saved.metadata.get("constants", constants) != constants:
            problem = f"gave other frozen parameters or constants than in the run of {place}"
            raise InputError(experiment.workload.model_place, problem, "resume it with the same files")
        flights = point.state.flights
        if point.model and {*point.model.updates} != {*flights.site[flights.has_update].tolist()}:
            problem = "does not hold the updates of the sites that are under way"
            raise InputError(str(place), problem, "resume with the hpctrip that wrote it")
        return point.model is not None

    if host.ranks.decide_on_root(has_model):
        return point, host.restore(point.model, place)
    return point, host.initial_params


def open_results(session: Session, point: ResumePoint, until_over: ExitStack, status: StatusFile) -> Results:
    """Rank 0's results: what writes and reports the rounds after `point`. It reports how the run starts."""
    from hpctrip.runner.progress import Progress, model_line  # heavy

    start, host, aggregator, everyone = session.start, session.host, session.aggregator, session.everyone
    assert aggregator is not None
    run_input, experiment, history = start.run_input, start.run_input.experiment, point.state.history
    before = start.checkpoint.metadata if start.checkpoint else {}
    saved = start.checkpoint.state.round if start.checkpoint else 0, start.checkpoint_file
    attributes, metadata = metadata_of(
        aggregator, run_input, everyone, session.sources, history, before, session.learning_key
    )
    # rounds of the cache take the run further where a checkpoint keeps them
    interruption = session.interruption(saved[0] if experiment.checkpoint.enabled else point.state.round)
    progress = until_over.enter_context(Progress(aggregator, start.path, history, status, session.quiet))
    engines = dict.fromkeys(rank.engine for rank in everyone[aggregator.ranks.hosts.start :])
    for line in (
        model_line(run_input, host.num_params),
        f"hosts train {'; '.join(engines)}",
        start.lock.note,
        *interruption.notes,
        *start.notes,
        *session.notes,
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
        json.loads(run_input.json),
        history.rows,
        tuple(rank.host for rank in everyone),
    )
    return Results(
        aggregator,
        Recorder(start.path, attributes, site_columns(aggregator.simulation)),
        Checkpointer(experiment.checkpoint, start.path, run_input.toml, metadata, *saved),
        interruption,
        progress,
        Callbacks(experiment.callbacks, facts, progress.say, phase=aggregator.ranks.phase),
        point.cache,
        recorded_round=point.state.round,
    )


def close(
    session: Session, results: Results | None, state: State, params: torch.Tensor, known_digest: str | None
) -> None:
    """Write the end of the run, after which the model is `params` [P + B]; its digest may be known. A collective."""
    host, ranks = session.host, session.host.ranks
    meters = ranks.gather(host.meter.description and f"{hostname()}: {host.meter.description}")

    def write() -> None:
        assert results is not None and meters is not None
        params_digest = digest(params) if known_digest is None else known_digest
        results.close(state, params_digest, list(filter(None, meters)))

    ranks.decide_on_root(write)
