"""Starts a run: from its first round, from a checkpoint, or from a finished run under another clock, network, power or
policy (retime), whose rounds are reused as long as the same sites train in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import check_suffix, check_writable, refuse_inputs
from hpctrip.base.units import HOUR_S
from hpctrip.config.identity import flat
from hpctrip.config.sources import Source, named_files, refuse_changed
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.checkpoint import Checkpoint, Model
from hpctrip.record.lock import OutputLock
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import SUFFIXES, Run, open_run
from hpctrip.runner.cache.trajectory import arrived_mask
from hpctrip.runner.cache.writer import CacheWriter
from hpctrip.runner.callbacks.base import REASON
from hpctrip.runner.experiment import Experiment, Input, merge_layers, read_input, read_user_input
from hpctrip.runner.provenance import WORKLOAD, RecordedInput, world_sources
from hpctrip.sim.rounds import History
from hpctrip.sim.step import NOBODY_LEFT, Simulation, State

_NO_MODEL = {"checkpoint": {"enabled": False}}
"""Overlay of the recorded input: no checkpoints, unless the user enables them to get the model."""


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

    @property
    def saved_round(self) -> int:
        """The round of `checkpoint`; 0 where there is none."""
        return self.checkpoint.state.round if self.checkpoint else 0


@dataclass(frozen=True, eq=False)
class ResumePoint:
    """The state and the model from which a run goes on."""

    state: State
    model: Model | None
    """The model after `state`; None: the initial one, or none is needed."""
    params_digest: str | None = None
    """Digest of the model after `state` where the model itself is not needed; None: take that of the model."""
    cache: CacheWriter | None = None
    """Writes the rounds that are trained from here on into the cache."""
    notes: tuple[str, ...] = ()
    """Lines for the user."""

    @classmethod
    def of(cls, start: Start, simulation: Simulation) -> ResumePoint:
        """The first round, or the one after the checkpoint."""
        if (saved := start.checkpoint) is None:
            return cls(simulation.judged(State()), None)
        return cls(simulation.judged(state_from_checkpoint(saved, start.run_input.experiment)), saved.model)


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
    refuse_inputs([path, *checkpoints.generations(path)], [*paths, *named])
    with locked(path, overwrite) as lock:
        return Start(run_input, path, lock)


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


def default_path(name: str, time: str = "") -> str:
    """Path of the results file of a scenario when the user names none. `time` is by default that of now, with
    microseconds, so that jobs of an array that start together write different files."""
    return f"results/{name}-{time or f'{datetime.now():%Y%m%d-%H%M%S-%f}'}.h5"


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
    results = source.removesuffix(suffix) if suffix in checkpoints.SUFFIXES else source
    elsewhere = out is not None and Path(out).resolve() != Path(results).resolve()
    path = out or results
    if elsewhere:
        check_name(out)
    with locked(path, overwrite=not elsewhere) as lock:
        checkpoint, file, faults = checkpoints.find(source)
        layers, extensions = read_user_input(paths, overrides, plugins)
        replaced = _replaceable(path)
        recorded = RecordedInput.of(file, checkpoint.input_toml, checkpoint.metadata)
        run_input = recorded.overlaid(layers, extensions)
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
        if saved := checkpoints.newest(out):
            checkpoint, file, faults = saved
            state, replaced = state_from_checkpoint(checkpoint, run_input.experiment), _replaceable(out)
            finished = replaced is not None and _is_over(replaced, state.history, run_input.experiment)
            return replace(_resumed(start, checkpoint, file, faults, replaced), finished=finished)
        if not Path(out).exists():
            return start
        earlier = open_run(out)  # a run without checkpoints, or one that ended before its first
        RecordedInput.of(earlier.path, earlier.input_toml, earlier.meta).refuse_other_input(run_input)
        done = earlier.status == "finished"
        if done and not _is_over(earlier, earlier.history(), run_input.experiment):
            raise InputError(
                out,
                "is finished, but the stop rules now ask for more, and it has no checkpoint beside it",
                "name another --out, or remove it to run anew",
            )
        notes = [] if done else [f"{out} has no checkpoint beside it: starting from the beginning"]
        return replace(start, notes=tuple(notes), finished=done)


def state_from_checkpoint(checkpoint: Checkpoint, experiment: Experiment) -> State:
    """The state after the last round of a checkpoint, before the stop rules are applied.

    A run evaluates its last round even where `evaluate.every_rounds` does not ask for it. If the run now goes on beyond
    that round, the evaluation is removed from the history, so that it equals that of a run that never stopped.
    """
    state, row = checkpoint.state, checkpoint.state.history.last
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
        state = replace(state, history=History((*state.history.rows[:-1], replace(row, **not_evaluated))))
    return replace(state, stop_reason="")


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
    recorded = RecordedInput.of(file, checkpoint.input_toml, checkpoint.metadata)
    recorded.refuse_other_input(start.run_input)
    refuse_changed(recorded.sources, world_sources(start.run_input), file)
    if replaced is not None:
        before = RecordedInput.of(replaced.path, replaced.input_toml, replaced.meta)
        before.refuse_other_input(start.run_input)
    notes = [
        *(f"skipped: {fault}" for fault in faults),
        f"resuming after round {checkpoint.state.round}, from {file}",
    ]
    return replace(
        start,
        checkpoint=checkpoint,
        recorded_sources=recorded.sources,
        checkpoint_file=file,
        notes=tuple(notes),
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


def start_retimed(
    source: str,
    paths: Iterable[str],
    overrides: Iterable[str],
    out: str | None,
    overwrite: bool = False,
    plugins: Iterable[str] = (),
) -> Start:
    """Start a run with the input that a results file records, overlaid with input files and -o lines
    (`RecordedInput.overlaid`). Raises InputError where training would see another input, and where a file that the
    recorded input names has changed."""
    run = open_run(source)
    run.history()  # raises for a damaged file before anything is computed
    recorded = RecordedInput.of(run.path, run.input_toml, run.meta)
    layers, extensions = read_user_input(paths, overrides, plugins)
    run_input = recorded.overlaid([_NO_MODEL, *layers], extensions)
    recorded.refuse_other_learning(run_input)
    overlay_keys = flat(merge_layers({}, layers))
    unchanged = [source for source in recorded.sources if source.key not in overlay_keys]
    refuse_changed(unchanged, world_sources(run_input), source)
    if run_input.experiment.timing.compute == "measured":
        problem = 'is "measured": times would be those that training takes here, and nothing is trained'
        raise InputError("timing.compute", problem, "use `run`")
    if (num_sites := run_input.experiment.num_sites()) != len(run.sites):
        problem = f"the input leads to {num_sites} sites, {source} has {len(run.sites)}, with other shards"
        raise InputError("sites", problem, "use `run`")
    training = tuple(source for source in recorded.sources if source.key.startswith(WORKLOAD))
    path = out or default_path(run_input.experiment.name)
    if Path(path).resolve() == Path(source).resolve():
        raise InputError(path, "is the run itself, which is to be compared with", "choose another --out")
    with locked(path, overwrite) as lock:
        return Start(run_input, path, lock, recorded_sources=training, earlier_run=run)


def comparison(before: Run, after: Run) -> list[str]:
    """Lines for the user that compare a retimed run, `after`, with the run that it repeats, `before`."""
    num_rounds, stored = len(after.rounds), after.meta["stored_rounds"]
    return [
        _first_difference(before, after),
        f"{num_rounds} round(s): {stored} taken, {num_rounds - stored} trained",
        *_time_to_accuracy(before, after),
    ]


def _first_difference(before: Run, after: Run) -> str:
    """A line that names the first round in which other sites train than before."""
    for old, new in zip(before.history().rows, after.history().rows, strict=False):
        for what, of in (
            ("decisions", lambda row: np.sort(row.cohort.site)),
            ("arrivals", lambda row: np.sort(row.cohort.site[arrived_mask(row.cohort.status)])),
        ):
            if not np.array_equal(of(old), of(new)):
                sizes = f"{len(of(new))} sites, {len(of(old))} in {before.path}"
                return f"{what} part at round {new.round}: {sizes}"
        if old.local_work != new.local_work:
            times = f"{new.local_work} times what [train] says, {old.local_work} in {before.path}"
            return f"local work parts at round {new.round}: {times}"
    lengths = f"{len(after.rounds)} round(s) here, {len(before.rounds)} there"
    return f"decisions never part from those of {before.path}: {lengths}"


def _time_to_accuracy(before: Run, after: Run) -> Iterator[str]:
    target = after.meta["target_accuracy"]
    if math.isnan(target):
        return
    old_s, new_s = before.time_to(target), after.time_to(target)
    ratio = f" ({new_s / old_s:.3f} times that)" if new_s / old_s > 0 else ""
    yield f"time to accuracy {target:g}: {_hours(new_s)}, {_hours(old_s)} in {before.path}{ratio}"


def _hours(seconds: float) -> str:
    return "not reached" if math.isnan(seconds) else f"{seconds / HOUR_S:.3f} h"
