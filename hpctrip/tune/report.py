"""Output files of `hpctrip tune`: input files to run with, the table and picture of all trials, and the power curve."""

from __future__ import annotations

import math
from functools import reduce
from itertools import starmap
from pathlib import Path

import tomli_w

from hpctrip.base.frames import pd
from hpctrip.base.io import check_writable, write_new
from hpctrip.config.inputs import Tables, deep, nested
from hpctrip.record.formats import csv_bytes
from hpctrip.tune.search import pareto_front
from hpctrip.tune.spaces import CAP, CLOCK
from hpctrip.tune.trial import Trial
from hpctrip.tune.tuner import TuneResult

TRIALS, PICTURE, CURVE = "trials.csv", "trials.png", "curve.csv"
OBJECTIVES = {"time": "the least time", "joules": "the least energy", "eta": "the least of Zeus' cost"}
"""{objective: its description}; each objective has a file best_OBJECTIVE.toml."""


def check(folder: Path, overwrite: bool) -> None:
    """Check, before anything is measured, that the files can be written. Raises InputError."""
    for name in (TRIALS, PICTURE, CURVE, *(f"best_{name}.toml" for name in OBJECTIVES)):
        check_writable(folder / name, overwrite)


def write(result: TuneResult, folder: Path, device: str, overwrite: bool) -> list[Path]:
    """Write all files and return their paths. `device` is named in them. Raises InputError, and writes nothing,
    if one of the files exists and `overwrite` is false."""
    trials = table(result)
    files = {folder / TRIALS: csv_bytes(trials)}
    for name, trial in result.best.items():
        files[folder / f"best_{name}.toml"] = overlay(name, trial, result.trials[0], device).encode()
    if trials["samples_per_joule"].notna().any():
        from hpctrip.figures.measured import tuning

        files[folder / PICTURE] = tuning(trials).image()
    if result.curve:
        files[folder / CURVE] = csv_bytes(curve(result.curve))
    return write_new(files, overwrite)


def table(result: TuneResult) -> pd.DataFrame:
    """Table with one row per trial; unknown numbers are NaN."""
    unbeaten = pareto_front(result.trials)
    rows = [
        {
            "setting": trial.setting_text,
            "samples_per_second": 1 / trial.sample_s,
            "relative_error": trial.error if math.isfinite(trial.error) else math.nan,
            "samples_per_joule": 1 / trial.sample_j,
            "watts": trial.watts,
            "accuracy": trial.accuracy,
            "rounds": trial.num_rounds,
            "on_front": str(any(trial is other for other in unbeaten)).lower(),
            "best_by": " ".join(name for name, best in result.best.items() if best is trial),
            "failure": trial.failure,
        }
        for trial in (*result.trials, *result.eliminated)
    ]
    return pd.DataFrame(rows)


def curve(trials: list[Trial]) -> pd.DataFrame:
    """Throughput of this device as a function of its power draw while training (W), one row per trial."""
    columns = {"clock_mhz": CLOCK, "cap_watts": CAP}
    rows = [
        {"watts": trial.watts, "samples_per_second": 1 / trial.sample_s}
        | {name: trial.keys.get(key) for name, key in columns.items()}
        for trial in trials
    ]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def overlay(name: str, trial: Trial, baseline: Trial, device: str) -> str:
    """Text of an input file to lay over the tuned input, as in `hpctrip run FILE.toml best_time.toml`.

    Its comments compare `trial`, the best by objective `name`, with `baseline`, both measured on `device`.
    """
    tables: Tables = reduce(deep, starmap(nested, trial.keys.items()), {})
    lines = [f"# {OBJECTIVES[name]} a sample on {device}, of the settings that `hpctrip tune` has tried:"]
    gain = _gain(trial, baseline, baseline.sample_s / trial.sample_s)
    lines.append(f"# {1 / trial.sample_s:,.1f} samples/s, {gain}")
    if not math.isnan(trial.sample_j):
        gain = _gain(trial, baseline, baseline.sample_j / trial.sample_j)
        lines.append(f"# {1 / trial.sample_j:.4g} samples/J, {gain}")
    return "\n".join([*lines, tomli_w.dumps(tables)])


def _gain(trial: Trial, baseline: Trial, ratio: float) -> str:
    if trial is baseline:
        return "by the original input"
    return f"{ratio:.2f} times those of the original input (+-{math.hypot(trial.error, baseline.error):.0%})"
