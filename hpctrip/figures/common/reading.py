"""Runs and traces as figures need them, and what they are in a few words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from hpctrip.base.errors import Fault
from hpctrip.base.units import HOUR_S
from hpctrip.record.reader import FAULTS_TOLD, InputError, Run, open_runs

NEEDED_ATTRIBUTES = ("policy", "label", "update_bytes")
NEEDED_SITE_COLUMNS = ("site", "distance_m", "bandwidth_bps", "comm_s", "num_samples", "power_fraction")
"""What figures use beyond what every results file is checked for by its reader."""
DRAWN_COLUMNS = {
    "rounds": ("clock_start_s", "clock_s", "makespan_s", "wall_s", "idle_fraction"),
    "sites": NEEDED_SITE_COLUMNS[:-1],  # an older file does not know the power
}
"""What must be finite to be drawn, {table: columns}."""


def read_runs(patterns: Sequence[str]) -> list[Run]:
    """The runs that files, folders and patterns name, each with at least one round and all that figures use."""
    runs = open_runs(patterns)
    for run in runs:
        if faults := run.schema_faults():
            raise InputError(faults=faults)
        missing = [name for name in NEEDED_ATTRIBUTES if name in run.added]
        missing += [f"/sites/{name}" for name in NEEDED_SITE_COLUMNS if name not in run.sites]
        if missing:
            raise InputError(
                str(run.path), f"lacks {', '.join(missing)}", "give a file that `hpctrip run` wrote"
            )
        if run.rounds.empty:
            raise InputError(str(run.path), "holds no finished round", "let it run longer, or leave it out")
        if faults := [*islice(chain(run.structure_faults(), _not_drawable(run)), FAULTS_TOLD)]:
            raise InputError(faults=faults)
    return runs


def _not_drawable(run: Run) -> Iterator[Fault]:
    """Times, sizes and distances that are none: an axis would have no end."""
    for table, names in DRAWN_COLUMNS.items():
        for name in names:
            values = run.tables[table][name]
            if not is_numeric_dtype(values) or not np.isfinite(values).all():
                yield Fault(f"{run.path}: /{table}/{name}", "is not a number everywhere", "restore a copy")


def counted(number: int, name: str) -> str:
    """1 site, 2 sites."""
    return f"{number} {name}" + ("" if number == 1 else "s")


def percent(fraction: float) -> str:
    """45 %, 45.2 %, or "none" for NaN."""
    return "none" if np.isnan(fraction) else f"{100 * fraction:.3g} %"


def provenance(runs: Sequence[Run], unlike: str = "") -> str:
    """What was made up and what was not, in a few words, and below it what `warn_of_differences` found.

    The time of every run is simulated, whatever its data.
    """
    said = []
    for what in ("data", "power"):
        made_up = sum(bool(run.meta[f"synthetic_{what}"]) for run in runs)
        some = "" if made_up in (0, len(runs)) else f" in {made_up} of {len(runs)} runs"
        said.append(("synthetic " if made_up else "real ") + what + some)
    return f"{', '.join(said)}; simulated time" + (f"\n{unlike}" if unlike else "")


def common_target(runs: Sequence[Run], given: float | None) -> float:
    """The accuracy to measure at: the one given, or the runs' own where they agree."""
    if given is not None:
        return given
    targets = sorted({float(run.meta["target_accuracy"]) for run in runs})
    if len(targets) == 1 and targets[0] > 0:
        return targets[0]
    listed = ", ".join(f"{target:g}" for target in targets)
    raise InputError("runs", f"no common target accuracy ({listed})", "name one with --target")


def cohort_steps(rounds: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Cohort size as a step curve: (hours [rounds + 1], sites [rounds + 1]) for `where="post"`."""
    hours = np.append(rounds["clock_start_s"], rounds["clock_s"].iloc[-1]) / HOUR_S
    return hours, np.append(rounds["num_sites"], rounds["num_sites"].iloc[-1])


def trace_title(frame: pd.DataFrame) -> str:
    """What the traces are, in a few words; synthetic ones are called so."""
    days = (frame["time_s"].max() - frame["time_s"].min()) / (24 * HOUR_S)
    size = ", ".join(counted(frame[name].nunique(), name) for name in ("cell", "domain"))
    return f"{'Synthetic' if frame.attrs['synthetic'] else 'Recorded'} traces: {size}, {days:.3g} days"


def step_words(frame: pd.DataFrame) -> str:
    """How long each value of traces holds: "5-minute"."""
    return f"{np.median(np.diff(np.unique(frame['time_s']))) / 60:.3g}-minute"
