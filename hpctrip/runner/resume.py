"""Starts a run from its first round or from a checkpoint, and restores the model of a checkpoint on every host."""

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
from hpctrip.runner.experiment import Experiment, Input, read_input, read_user_input
from hpctrip.runner.host import Host
from hpctrip.runner.provenance import world_sources
from hpctrip.runner.recorded_input import RecordedInput
from hpctrip.runner.signals import stop_file
from hpctrip.sim.rounds import History
from hpctrip.sim.step import NOBODY_LEFT, State

Model = Checkpoint | CachedModel
"""A model with the optimiser and site states from which training can continue."""


@dataclass(frozen=True, eq=False)
class Start:
    """How a run starts, at rank 0: its input, its files, and the checkpoint to resume from."""

    run_input: Input
    """The merged input and what it means."""
    path: str
    """The results file."""
    lock: OutputLock
    """Lock on the results file; the caller releases it at the end of the run."""
    checkpoint: Checkpoint | None = None
    """The checkpoint to resume from; None: the run starts with round 1."""
    recorded_sources: tuple[Source, ...] = ()
    """Sources recorded in the checkpoint or results file from which the run starts."""
    checkpoint_file: Path | None = None
    """The file of `checkpoint`."""
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
    path = out or default_path(run_input.experiment.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    named = [file.value for file in named_files(run_input.experiment)]
    refuse_inputs([path, *checkpoints.generations(path)], [*paths, *named])
    with locked(path, overwrite) as lock:
        return _unless_stop_file_exists(Start(run_input, path, lock))


def check_name(out: str | None) -> None:
    """Raise InputError where `out` has no suffix of a results file. Folders are left to `check_writable`."""
    if out is not None and not Path(out).is_dir():
        check_suffix(out, SUFFIXES)


@contextmanager
def locked(path: str, overwrite: bool) -> Iterator[OutputLock]:
    """Context that locks a results file and its checkpoints for writing. It releases the lock only if the body raises:
    the run does so at its end. Raises InputError where a file cannot be written, or exists and `overwrite` is false."""
    check_writable(path, overwrite)
    lock = OutputLock(path)
    try:
        check_writable(path, overwrite)  # again under the lock: another process may have created it
        for file in checkpoints.generations(path):
            if file.exists() and not overwrite:
                raise InputError(str(file), "exists already", "resume from it, or --overwrite")
            check_writable(file, overwrite)
        yield lock
    except BaseException:
        lock.release()
        raise


def default_path(name: str, time: str) -> str:
    """Path of the results file of a scenario when the user names none. `time` has microseconds, so that jobs of an
    array that start together write different files."""
    return f"results/{name}-{time}.h5"


def start_resumed(
    source: str,
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    plugins: Iterable[str] = (),
) -> Start:
    """Start from the newest intact checkpoint of a results file, or from the checkpoint `source` itself.

    The input is the recorded one, overlaid with input files and -o lines (`RecordedInput.overlaid`). `out` names
    another results file to write. Raises InputError where there is no checkpoint, where the input differs in more than
    the stop rules, and where the results file cannot be written.
    """
    suffix = Path(source).suffix
    is_checkpoint = suffix in checkpoints.SUFFIXES
    results = source.removesuffix(suffix) if is_checkpoint else source
    elsewhere = out is not None and Path(out).resolve() != Path(results).resolve()
    path = out or results
    if elsewhere:
        check_name(out)
    with locked(path, overwrite=not elsewhere) as lock:
        checkpoint, file, faults = (
            (checkpoints.read(source), Path(source), []) if is_checkpoint else checkpoints.newest(source)
        )
        if checkpoint is None or file is None:
            looked = " and ".join(map(str, checkpoints.generations(source)))
            raise InputError(source, "has no checkpoint beside it", f"looked for {looked}")
        layers, extensions = read_user_input(paths, overrides, plugins)
        replaced = _replaceable(path)
        run_input = RecordedInput.from_checkpoint(checkpoint, file).overlaid(layers, extensions)
        return _resumed(Start(run_input, path, lock), checkpoint, file, faults, replaced)


def start_or_resume(
    paths: Iterable[str], overrides: Iterable[str], out: str | None, plugins: Iterable[str] = ()
) -> Start:
    """Start a run, resume it, or report it as finished, depending on the files at `out`: one command for requeued jobs.
    Raises InputError where those files record another input, or are damaged."""
    if out is None:
        raise InputError("--resume", "no results file is named", "add --out FILE.h5")
    check_name(out)
    return start_or_resume_input(read_input(paths, overrides, plugins), out)


def start_or_resume_input(run_input: Input, out: str) -> Start:
    """`start_or_resume` for an input that has been read already. Raises HeldError where another job holds the lock."""
    with locked(out, overwrite=True) as lock:
        start = Start(run_input, out, lock)
        checkpoint, file, faults = checkpoints.newest(out)
        if checkpoint is not None and file is not None:
            state, replaced = state_from_checkpoint(checkpoint, run_input.experiment), _replaceable(out)
            finished = replaced is not None and _is_over(replaced, state.history, run_input.experiment)
            return replace(_resumed(start, checkpoint, file, faults, replaced), finished=finished)
        if not Path(out).exists():
            return _unless_stop_file_exists(start)
        earlier = open_run(out)  # a run without checkpoints, or one that ended before its first
        RecordedInput.from_results(earlier).refuse_other_input(run_input)
        done = earlier.status == "finished"
        if done and not _is_over(earlier, earlier.history(), run_input.experiment):
            raise InputError(
                out,
                "is finished, but the stop rules now ask for more, and it has no checkpoint beside it",
                "name another --out, or remove it to run anew",
            )
        notes = [] if done else [f"{out} has no checkpoint beside it: starting from the beginning"]
        return _unless_stop_file_exists(replace(start, notes=tuple(notes), finished=done))


def state_from_checkpoint(checkpoint: Checkpoint, experiment: Experiment) -> State:
    """The state after the last round of a checkpoint, before the stop rules are applied.

    A run evaluates its last round even where `evaluate.every_rounds` does not ask for it. If the run now goes on beyond
    that round, the evaluation is removed from the history, so that it equals that of a run that never stopped.
    """
    history, row = checkpoint.history, checkpoint.history.last
    due, last = experiment.evaluate.due, experiment.stop.max_rounds
    if row is not None and row.eval_seen and not due(row.round, last):
        not_evaluated = dict(
            accuracy=math.nan,
            eval_correct=0,
            eval_seen=0,
            eval_loss=math.nan,
            eval_perplexity=math.nan,
            efficiency=math.nan,
        )
        history = History((*history.rows[:-1], replace(row, **not_evaluated)))
    return State(checkpoint.round, checkpoint.clock_s, history)


def _is_over(run: Run, history: History, experiment: Experiment) -> bool:
    """Whether a run has finished and the stop rules of `experiment` would not continue it. A run that ended because no
    site was left, or at the request of a callback, stays finished under any stop rules."""
    by_rule = experiment.stop.reason(history)
    is_final = run.meta["stop_reason"].startswith((NOBODY_LEFT, REASON))
    return run.status == "finished" and bool(by_rule or is_final)


def _resumed(
    start: Start, checkpoint: Checkpoint, file: Path, faults: list[str], replaced: Run | None
) -> Start:
    """`start`, resumed from a checkpoint; `faults` are those of a damaged second checkpoint.

    Raises InputError where the checkpoint or the results file that is `replaced` records another input, and where a
    file of the simulated world has changed. Training data are compared later, when they are prepared.
    """
    experiment, recorded = start.run_input.experiment, RecordedInput.from_checkpoint(checkpoint, file)
    recorded.refuse_other_input(start.run_input)
    refuse_changed(recorded.sources, world_sources(start.run_input), file)
    num_sites = experiment.num_sites()
    for row in checkpoint.history.rows:
        if not all(0 <= site < num_sites for site in row.cohort.site.tolist()):
            raise InputError(
                str(file),
                f"its round {row.round} has a site that is not one of 0 to {num_sites - 1}",
                "resume from the other one",
            )
    if replaced is not None:
        RecordedInput.from_results(replaced).refuse_other_input(start.run_input)
    notes = [
        *(f"skipped: {fault}" for fault in faults),
        f"going on after round {checkpoint.round}, from {file}",
    ]
    return _unless_stop_file_exists(
        replace(
            start,
            checkpoint=checkpoint,
            recorded_sources=recorded.sources,
            checkpoint_file=file,
            notes=tuple(notes),
        )
    )


def _replaceable(path: str) -> Run | None:
    """The results file at `path`; None where there is none, or where it is damaged and will be replaced. Raises
    InputError where the file is not a results file, which is never overwritten."""
    if not Path(path).exists():
        return None
    try:
        return open_run(path)
    except DamagedError:
        return None
    except InputError as error:
        fault = error.faults[0]
        hint = "nothing is written over it: name another --out, or move it away"
        raise InputError(fault.place, fault.problem, hint) from None


def _unless_stop_file_exists(start: Start) -> Start:
    """`start` itself. Raises InputError where the stop file of its results file exists."""
    file = stop_file(start.path)
    if file.exists():
        raise InputError(str(file), "asks runs with this results file to stop", "remove it to run")
    return start


def restore(host: Host, model: Model | None, place: object) -> torch.Tensor:
    """Set server state and site states of this rank to those of `model`; returns its parameters [P]. A collective;
    `model` is used at rank 0 only. `place` names its file in messages. Raises InputError as `checked_tensors`."""
    ranks = host.ranks
    params, slots = ranks.decide_on_root(lambda: checked_tensors(host, model, place))
    host.slots.copy_(slots)
    if host.fixed_hosts is not None:
        site_states = (
            {site: torch.from_numpy(row) for site, row in model.site_states.items()} if model else None
        )
        rows = ranks.scatter_rows(site_states, np.array(ranks.hosts)[host.fixed_hosts])
        host.memory.rows = {site: row.to(host.device) for site, row in rows.items()}
    return params.to(host.device)


def checked_tensors(host: Host, model: Model | None, place: object) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters [P] and slots [num_slots, P] of `model`. Raises InputError at `place` where their shapes, or those of
    the site states, are not those of this run."""
    assert model is not None
    params, slots, site_states = model.params, model.slots, model.site_states
    hint = "resume with the hpctrip that wrote it"
    if params.shape != host.initial_params.shape or slots.shape != tuple(host.slots.shape):
        raise InputError(
            str(place),
            f"holds {params.shape} parameters and {slots.shape} slots, the model has "
            f"{tuple(host.initial_params.shape)} and {tuple(host.slots.shape)}",
            hint,
        )
    for site, row in site_states.items():
        if not 0 <= site < host.num_sites or row.shape != (host.memory.length,):
            raise InputError(
                str(place),
                f"holds {row.shape} numbers kept by site {site}; a site keeps {host.memory.length}, sites are 0 to "
                f"{host.num_sites - 1}",
                hint,
            )
    return torch.from_numpy(params), torch.from_numpy(slots)
