"""Starts a retimed run: a finished run again under another clock, network, power or policy. Its rounds are reused as
long as the same sites train in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.units import HOUR_S
from hpctrip.config.identity import flat
from hpctrip.config.sources import refuse_changed
from hpctrip.record.reader import Run, open_run
from hpctrip.runner.cache.trajectory import arrived_mask
from hpctrip.runner.experiment import merge_layers, read_user_input
from hpctrip.runner.provenance import WORKLOAD, world_sources
from hpctrip.runner.recorded_input import RecordedInput
from hpctrip.runner.resume import Start, default_path, locked
from hpctrip.sim.rounds import RoundRow

_NO_MODEL = {"checkpoint": {"enabled": False}}
"""Overlay of the recorded input: no checkpoints, unless the user enables them to get the model."""


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
    recorded = RecordedInput.from_results(run)
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
    path = out or default_path(run_input.experiment.name, f"{datetime.now():%Y%m%d-%H%M%S-%f}")
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
    pairs = zip(before.history().rows, after.history().rows, strict=False)
    for old, new in pairs:
        for what, of in (("decisions", _cohort), ("arrivals", _arrived)):
            if not np.array_equal(of(old), of(new)):
                sizes = f"{len(of(new))} sites, {len(of(old))} in {before.path}"
                return f"{what} part at round {new.round}: {sizes}"
        if old.local_work != new.local_work:
            times = f"{new.local_work} times what [train] says, {old.local_work} in {before.path}"
            return f"local work parts at round {new.round}: {times}"
    lengths = f"{len(after.rounds)} round(s) here, {len(before.rounds)} there"
    return f"decisions never part from those of {before.path}: {lengths}"


def _cohort(row: RoundRow) -> np.ndarray:
    return np.sort(row.cohort.site)


def _arrived(row: RoundRow) -> np.ndarray:
    return np.sort(row.cohort.site[arrived_mask(row.cohort.status)])


def _time_to_accuracy(before: Run, after: Run) -> Iterator[str]:
    target = after.meta["target_accuracy"]
    if math.isnan(target):
        return
    old_s, new_s = before.time_to(target), after.time_to(target)
    ratio = f" ({new_s / old_s:.3f} times that)" if new_s / old_s > 0 else ""
    yield f"time to accuracy {target:g}: {_hours(new_s)}, {_hours(old_s)} in {before.path}{ratio}"


def _hours(seconds: float) -> str:
    return "not reached" if math.isnan(seconds) else f"{seconds / HOUR_S:.3f} h"
