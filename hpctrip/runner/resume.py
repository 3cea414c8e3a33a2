"""Starts of a run that goes on: from a checkpoint, or from a finished run under another clock, network, power or policy
(retime), whose rounds are reused as long as the same sites train in them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.units import HOUR_S
from hpctrip.config.identity import flat
from hpctrip.config.sources import refuse_changed
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.lock import check_name, default_path, locked
from hpctrip.record.open_checked import DamagedError
from hpctrip.record.reader import Run, open_run
from hpctrip.runner.callbacks.base import REASON
from hpctrip.runner.experiment import Experiment, Input, merge_layers, read_input, read_user_input
from hpctrip.runner.loop import state_of
from hpctrip.runner.provenance import WORKLOAD, RecordedInput, world_sources
from hpctrip.runner.session import Start
from hpctrip.sim.flights import RoundTimes
from hpctrip.sim.rounds import History
from hpctrip.sim.step import NOBODY_LEFT

_NO_MODEL = {"checkpoint": {"enabled": False}}
"""Overlay of the recorded input: no checkpoints, unless the user enables them to get the model."""


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
        anew = f"hpctrip run --resume --out {shlex.quote(path)} INPUT starts it from the beginning; "
        checkpoint, file, faults = checkpoints.find(source, anew)
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
            state, replaced = state_of(checkpoint, run_input.experiment), _replaceable(out)
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
    if (num_sites := run_input.experiment.checked_num_sites()) != len(run.sites):
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
            ("arrivals", lambda row: np.sort(row.cohort.site[RoundTimes.recorded(row).arriving])),
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
