"""Where a run starts: anew, or from the newest whole checkpoint beside a results file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hpctrip.app.experiment import Experiment, laid_over, read_input, resolve
from hpctrip.app.signals import stop_file
from hpctrip.base.errors import Fault, InputError
from hpctrip.base.identity import differing, flat, neutral_keys, without
from hpctrip.base.inputs import Tables, read_layers, resolved
from hpctrip.record import checkpoint as checkpoints
from hpctrip.record.checkpoint import Checkpoint
from hpctrip.record.reader import open_run
from hpctrip.record.writer import check_writable
from hpctrip.sim.rounds import History
from hpctrip.sim.state import State

MAY_DIFFER = ("stop",)
"""What may change between the parts of one run besides the keys that change no result: when it ends."""


@dataclass(frozen=True, eq=False)
class Start:
    """What rank 0 finds before anything is computed."""

    tables: Tables
    """The merged input."""
    path: str
    """The results file."""
    checkpoint: Checkpoint | None = None
    """What to go on from; None: from the beginning."""
    source: Path | None = None
    """The checkpoint's file."""
    notes: tuple[str, ...] = ()
    """What to tell the user."""
    finished: bool = False
    """There is nothing left to do."""


def start_new(paths: Iterable[str], overrides: Iterable[str], out: str | None, overwrite: bool) -> Start:
    """A run from the beginning. Raises InputError for bad input and where files are in the way."""
    given = read_input(paths, overrides)
    path = out or default_path(given.experiment.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
    check_writable(path, overwrite)
    for file in checkpoints.generations(path):
        if file.exists() and not overwrite:
            raise InputError(str(file), "exists already", "resume from it, or allow overwriting")
    return _unless_told_to_stop(Start(given.tables, path))


def default_path(name: str, time: str) -> str:
    """The results file of a scenario for which none is named. Down to microseconds, `time` keeps runs apart that start
    together: jobs of an array, say."""
    return f"results/{name}-{time}.h5"


def start_resumed(source: str, paths: Iterable[str], overrides: Iterable[str], out: str | None) -> Start:
    """Go on from a results file's newest whole checkpoint, or from the named one; the input is the stored one with
    files and -o lines laid over it. `out` writes another results file. Raises InputError where that cannot be."""
    notes: list[str] = []
    suffix = Path(source).suffix
    if suffix in checkpoints.SUFFIXES:
        found, file, path = checkpoints.read(source), Path(source), source.removesuffix(suffix)
    else:
        found, file, notes = checkpoints.newest(source)
        path = source
    if found is None:
        raise InputError(source, "has no checkpoint beside it", f"looked for {' and '.join(_names(source))}")
    tables = laid_over(_stored(found.input_toml, file), read_layers(paths, overrides))
    elsewhere = out is not None and Path(out).resolve() != Path(path).resolve()
    path = out or path
    for written in (path, *checkpoints.generations(path)):
        check_writable(written, overwrite=not elsewhere)
    return _resumed(tables, path, found, file, notes)


def start_or_resume(paths: Iterable[str], overrides: Iterable[str], out: str | None) -> Start:
    """The same command starts a run, goes on with it, and does nothing once it is finished: for jobs that are
    requeued. Raises InputError where what lies at `out` belongs to another input, or is damaged."""
    if out is None:
        raise InputError("--resume", "no results file is named", "add --out FILE.h5")
    given = read_input(paths, overrides)
    check_writable(out, overwrite=True)
    found, file, notes = checkpoints.newest(out)
    if found is not None:
        start = _resumed(given.tables, out, found, file, notes)
        state = state_of(found, given.experiment)
        return replace(start, finished=bool(state.stop_reason) and _status(out) == "finished")
    if not Path(out).exists():
        return _unless_told_to_stop(Start(given.tables, out))
    earlier = open_run(out)  # made without checkpoints, or ended before the first one
    _refuse_other_input(_stored(earlier.input_toml, out), given.experiment, out)
    done = earlier.meta["status"] == "finished"
    if done and not given.experiment.stop.reason(earlier.history()):
        raise InputError(
            out,
            "is finished, but the stop rules now ask for more, and it has no checkpoint beside it",
            "name another --out, or remove it to run anew",
        )
    notes = [] if done else [f"{out} has no checkpoint beside it: starting from the beginning"]
    return _unless_told_to_stop(Start(given.tables, out, notes=tuple(notes), finished=done))


def state_of(checkpoint: Checkpoint, experiment: Experiment) -> State:
    """The state to go on from, under the stop rules of `experiment`.

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
    return State(checkpoint.round, checkpoint.clock_s, history, experiment.stop.reason(history))


def _resumed(tables: Tables, path: str, found: Checkpoint, file: Path | None, notes: list[str]) -> Start:
    assert file is not None
    _refuse_other_input(_stored(found.input_toml, file), resolve(tables).experiment, file)
    notes = [*(f"skipped: {note}" for note in notes), f"going on after round {found.round}, from {file}"]
    return _unless_told_to_stop(Start(tables, path, found, file, tuple(notes)))


def _stored(input_toml: str, file: str | Path | None) -> Tables:
    try:
        return tomllib.loads(input_toml)
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise InputError(str(file), f"holds no valid input ({error})", "resume from the other one") from None


def _refuse_other_input(stored: Tables, new: Experiment, place: str | Path) -> None:
    """Raise InputError naming every key that differs from the input stored at `place` and must not."""
    may_differ = [*neutral_keys(new), *MAY_DIFFER]
    before, after = (
        without(flat(resolved(experiment)), may_differ) for experiment in (resolve(stored).experiment, new)
    )
    faults = [
        Fault(
            key,
            f"is {_toml(after.get(key))}, but {_toml(before.get(key))} in {place}",
            "only stop rules may change",
        )
        for key in differing([before, after])
    ]
    if faults:
        raise InputError(faults=faults)


def _toml(value: Any) -> str:
    return "absent" if value is None else repr(value)


def _names(path: str) -> list[str]:
    return [str(file) for file in checkpoints.generations(path)]


def _status(path: str) -> str:
    try:
        return open_run(path).meta["status"] if Path(path).exists() else ""
    except InputError:
        return ""  # unreadable: it will be written anew from the checkpoint


def _unless_told_to_stop(start: Start) -> Start:
    file = stop_file(start.path)
    if file.exists():
        raise InputError(str(file), "asks runs with this results file to stop", "remove it to run")
    return start
