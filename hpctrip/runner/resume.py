"""Starts a run: anew, or from the newest whole checkpoint beside a results file, to which it brings every host back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np
import torch

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_suffix, check_writable, refuse_inputs
from hpctrip.config.sources import Source, named_files, refuse_changed
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.lock import OutputLock
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import SUFFIXES, Run, open_run
from hpctrip.runner.cache.trajectory import CachedModel
from hpctrip.runner.callbacks.calls import REASON
from hpctrip.runner.experiment import Experiment, Input, read_given, read_input
from hpctrip.runner.host import Host
from hpctrip.runner.provenance import world_sources
from hpctrip.runner.recorded_input import RecordedInput
from hpctrip.runner.signals import stop_file
from hpctrip.sim.rounds import History
from hpctrip.sim.step import NOBODY_LEFT, State

Model = Checkpoint | CachedModel
"""A model with all that is needed to train on."""


@dataclass(frozen=True, eq=False)
class Start:
    """The start of a run at rank 0: its input, its files, and the state to go on from."""

    given: Input
    """The merged input and what it means."""
    path: str
    """The results file."""
    lock: OutputLock
    """The right to write it, to be released when the run is over."""
    checkpoint: Checkpoint | None = None
    """The state to go on from; None: from the beginning."""
    read: tuple[Source, ...] = ()
    """The sources that the checkpoint or results file records."""
    source: Path | None = None
    """The checkpoint's file."""
    notes: tuple[str, ...] = ()
    """Lines for the user."""
    known: Run | None = None
    """A run that learned the same: the rounds that this one has in common with it need not be trained."""
    finished: bool = False
    """Whether the run is over already."""


def start_new(
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    overwrite: bool,
    plugins: Iterable[str] = (),
) -> Start:
    """A run from the beginning. Raises InputError for bad input and where files are in the way."""
    check_name(out)
    given = read_input(paths := list(paths), overrides, plugins)
    path = out or default_path(given.experiment.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    named = [file.value for file in named_files(given.experiment)]
    refuse_inputs([path, *checkpoints.generations(path)], [*paths, *named])
    with locked(path, overwrite) as lock:
        return _unless_told_to_stop(Start(given, path, lock))


def check_name(out: str | None) -> None:
    """Raise InputError where `out` is no name for a results file. A folder is told of by `check_writable`."""
    if out is not None and not Path(out).is_dir():
        check_suffix(out, SUFFIXES)


@contextmanager
def locked(path: str, overwrite: bool) -> Iterator[OutputLock]:
    """The right to write that results file and its checkpoints, given back where the body fails. Raises InputError
    where they cannot be written, or are there and not to be overwritten."""
    check_writable(path, overwrite)
    lock = OutputLock(path)
    try:
        check_writable(path, overwrite)  # again: it may have come meanwhile
        for file in checkpoints.generations(path):
            if file.exists() and not overwrite:
                raise InputError(str(file), "exists already", "resume from it, or --overwrite")
            check_writable(file, overwrite)
        yield lock
    except BaseException:
        lock.release()
        raise


def default_path(name: str, time: str) -> str:
    """The results file of a scenario for which none is named. Down to microseconds, `time` keeps runs apart that start
    together: jobs of an array, say."""
    return f"results/{name}-{time}.h5"


def start_resumed(
    source: str,
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    plugins: Iterable[str] = (),
) -> Start:
    """Go on from a results file's newest whole checkpoint, or from the named one, with the input that it records and
    files and -o lines laid over it (`RecordedInput.overlaid`). `out` writes another results file.
    Raises InputError where that cannot be."""
    suffix = Path(source).suffix
    one = suffix in checkpoints.SUFFIXES
    results = source.removesuffix(suffix) if one else source
    elsewhere = out is not None and Path(out).resolve() != Path(results).resolve()
    path = out or results
    if elsewhere:
        check_name(out)
    with locked(path, overwrite=not elsewhere) as lock:
        found, file, notes = (
            (checkpoints.read(source), Path(source), []) if one else checkpoints.newest(source)
        )
        if found is None or file is None:
            looked = " and ".join(map(str, checkpoints.generations(source)))
            raise InputError(source, "has no checkpoint beside it", f"looked for {looked}")
        layers, extensions = read_given(paths, overrides, plugins)
        written = _replaceable(path)
        start = Start(RecordedInput.from_checkpoint(found, file).overlaid(layers, extensions), path, lock)
        return _resumed(start, found, file, notes, written)


def start_or_resume(
    paths: Iterable[str], overrides: Iterable[str], out: str | None, plugins: Iterable[str] = ()
) -> Start:
    """The same command starts a run, goes on with it, and does nothing once it is finished: for jobs that are
    requeued. Raises InputError where what lies at `out` belongs to another input, or is damaged."""
    if out is None:
        raise InputError("--resume", "no results file is named", "add --out FILE.h5")
    check_name(out)
    return start_or_go_on(read_input(paths, overrides, plugins), out)


def start_or_go_on(given: Input, out: str) -> Start:
    """The same for an input that has been read. Raises HeldError where another job has the results file."""
    with locked(out, overwrite=True) as lock:
        start = Start(given, out, lock)
        found, file, notes = checkpoints.newest(out)
        if found is not None and file is not None:
            state, written = state_of(found, given.experiment), _replaceable(out)
            finished = written is not None and _is_over(written, state.history, given.experiment)
            return replace(_resumed(start, found, file, notes, written), finished=finished)
        if not Path(out).exists():
            return _unless_told_to_stop(start)
        earlier = open_run(out)  # made without checkpoints, or ended before the first one
        RecordedInput.from_results(earlier).refuse_other_input(given)
        done = earlier.status == "finished"
        if done and not _is_over(earlier, earlier.history(), given.experiment):
            raise InputError(
                out,
                "is finished, but the stop rules now ask for more, and it has no checkpoint beside it",
                "name another --out, or remove it to run anew",
            )
        notes = [] if done else [f"{out} has no checkpoint beside it: starting from the beginning"]
        return _unless_told_to_stop(replace(start, notes=tuple(notes), finished=done))


def state_of(checkpoint: Checkpoint, experiment: Experiment) -> State:
    """The state to go on from, not yet judged by the stop rules.

    The last round of a run is evaluated even where its turn has not come; if the run goes on beyond it, that evaluation
    did not happen, as in a run that never stopped.
    """
    history, row = checkpoint.history, checkpoint.history.last
    due, last = experiment.evaluate.due, experiment.stop.max_rounds
    if row is not None and row.eval_seen and not due(row.round, last):
        nothing = dict(
            accuracy=math.nan,
            eval_correct=0,
            eval_seen=0,
            eval_loss=math.nan,
            eval_perplexity=math.nan,
            efficiency=math.nan,
        )
        history = History((*history.rows[:-1], replace(row, **nothing)))
    return State(checkpoint.round, checkpoint.clock_s, history)


def _is_over(run: Run, history: History, experiment: Experiment) -> bool:
    """Whether a run has finished and would not go on under the stop rules of `experiment`. A recorded reason stands
    where nobody is left, which follows from keys that cannot be given otherwise, and where a callback ended the run."""
    by_rule = experiment.stop.reason(history)
    is_final = run.meta["stop_reason"].startswith((NOBODY_LEFT, REASON))
    return run.status == "finished" and bool(by_rule or is_final)


def _resumed(start: Start, found: Checkpoint, file: Path, notes: list[str], replaced: Run | None) -> Start:
    """`start` going on from a checkpoint. Both it and the results that it will replace must be of the same input, and
    the files of the world the same as then; what training reads is compared when it is prepared."""
    experiment, recorded = start.given.experiment, RecordedInput.from_checkpoint(found, file)
    recorded.refuse_other_input(start.given)
    refuse_changed(recorded.sources, world_sources(start.given), file)
    num_sites = experiment.num_sites()
    for row in found.history.rows:
        if not all(0 <= site < num_sites for site in row.cohort.site.tolist()):
            raise InputError(
                str(file),
                f"its round {row.round} has a site that is not one of 0 to {num_sites - 1}",
                "resume from the other one",
            )
    if replaced is not None:
        RecordedInput.from_results(replaced).refuse_other_input(start.given)
    notes = [*(f"skipped: {note}" for note in notes), f"going on after round {found.round}, from {file}"]
    return _unless_told_to_stop(
        replace(start, checkpoint=found, read=recorded.sources, source=file, notes=tuple(notes))
    )


def _replaceable(path: str) -> Run | None:
    """The results file; None where there is none, or where it is damaged and will be written anew: what it says of its
    input is then not to be trusted. Raises InputError where something else lies there: a checkpoint does not make up
    for it."""
    if not Path(path).exists():
        return None
    try:
        return open_run(path)
    except DamagedError:
        return None
    except InputError as error:
        fault = error.faults[0]
        way_out = "nothing is written over it: name another --out, or move it away"
        raise InputError(fault.place, fault.problem, way_out) from None


def _unless_told_to_stop(start: Start) -> Start:
    file = stop_file(start.path)
    if file.exists():
        raise InputError(str(file), "asks runs with this results file to stop", "remove it to run")
    return start


def restore(host: Host, model: Model | None, place: object) -> torch.Tensor:
    """Bring back the model of `place`; returns its parameters [P]. A collective; `model` is None but at
    rank 0."""
    ranks = host.ranks
    params, slots = ranks.decide_on_root(lambda: fitting(host, model, place))
    host.slots.copy_(slots)
    if host.fixed_hosts is not None:
        kept = {site: torch.from_numpy(row) for site, row in model.kept.items()} if model else None
        rows = ranks.scatter_rows(kept, np.array(ranks.hosts)[host.fixed_hosts])
        host.memory.rows = {site: row.to(host.device) for site, row in rows.items()}
    return params.to(host.device)


def fitting(host: Host, model: Model | None, place: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Its parameters [P] and slots [num_slots, P]; InputError at `place` where the run's own have other shapes."""
    assert model is not None
    params, slots, kept = model.params, model.slots, model.kept
    way_out = "resume with the hpctrip that wrote it"
    if params.shape != host.initial_params.shape or slots.shape != tuple(host.slots.shape):
        raise InputError(
            str(place),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(host.initial_params.shape)} and {tuple(host.slots.shape)}",
            way_out,
        )
    for site, row in kept.items():
        if not 0 <= site < host.num_sites or row.shape != (host.memory.length,):
            raise InputError(
                str(place),
                f"holds {row.shape} numbers kept by site {site}; a site keeps {host.memory.length}, sites are 0 to "
                f"{host.num_sites - 1}",
                way_out,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)
