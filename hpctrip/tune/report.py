"""What `tune` leaves in its folder: overlays to run with, the table of all trials, the front, and the curve."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import starmap
from pathlib import Path

import pandas as pd
import tomli_w

from hpctrip.base.io import check_writable, write_new
from hpctrip.config.inputs import Tables, deep, nested
from hpctrip.record.merge import csv_bytes
from hpctrip.tune.dials import CAP, CLOCK
from hpctrip.tune.search import front
from hpctrip.tune.trial import Keys, Trial
from hpctrip.tune.tuner import Tuned

TRIALS, PICTURE, CURVE = "trials.csv", "trials.png", "curve.csv"
WORDS = {"time": "the least time", "joules": "the least energy", "eta": "the least of Zeus' cost"}


def check(folder: Path, overwrite: bool) -> None:
    """Raise InputError where the files could not be written, before anything is measured."""
    for name in (TRIALS, PICTURE, CURVE, *(f"best_{name}.toml" for name in WORDS)):
        check_writable(folder / name, overwrite)


def write(tuned: Tuned, folder: Path, device: str, overwrite: bool) -> list[Path]:
    """Write it all, or nothing where one of the files is there and not to be overwritten (InputError)."""
    found = table(tuned)
    files = {folder / TRIALS: csv_bytes(found)}
    for name, trial in tuned.best.items():
        files[folder / f"best_{name}.toml"] = overlay(name, trial, tuned.trials[0], device).encode()
    if found["samples_per_joule"].notna().any():
        from hpctrip.figures.tuning import plot

        files[folder / PICTURE] = plot(found).image()
    if tuned.curve:
        files[folder / CURVE] = csv_bytes(curve(tuned.curve))
    return write_new(files, overwrite)


def table(tuned: Tuned) -> pd.DataFrame:
    """A row a trial; empty where a number is not known."""
    on_front = front(tuned.trials)
    best = {id(trial): [] for trial in tuned.trials}
    for name, trial in tuned.best.items():
        best[id(trial)].append(name)
    rows = [
        {
            "setting": trial.words,
            "samples_per_second": 1 / trial.sample_s,
            "relative_error": trial.error if math.isfinite(trial.error) else math.nan,
            "samples_per_joule": 1 / trial.sample_j,
            "watts": trial.watts,
            "accuracy": trial.accuracy,
            "rounds": trial.num_rounds,
            "on_front": str(any(trial is other for other in on_front)).lower(),
            "best_by": " ".join(best.get(id(trial), [])),
            "failure": trial.failure,
        }
        for trial in (*tuned.trials, *tuned.fell_out)
    ]
    return pd.DataFrame(rows)


def curve(trials: list[Trial]) -> pd.DataFrame:
    """What power is worth on this device: the draw while training, and the throughput under it."""
    columns = {"clock_mhz": CLOCK, "cap_watts": CAP}
    rows = [
        {"watts": trial.watts, "samples_per_second": 1 / trial.sample_s}
        | {name: trial.keys.get(key) for name, key in columns.items()}
        for trial in trials
    ]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def overlay(name: str, trial: Trial, before: Trial, device: str) -> str:
    """An input file that is laid over the one that was tuned: `hpctrip run FILE.toml best_time.toml`."""
    lines = [f"# {WORDS[name]} a sample on {device}, of what `hpctrip tune` has tried:"]
    lines += [f"# {line}" for line in _gains(trial, before)]
    return "\n".join([*lines, tomli_w.dumps(_tables(trial.keys))])


def _gains(trial: Trial, before: Trial) -> Iterator[str]:
    yield f"{1 / trial.sample_s:,.1f} samples/s, {_gain(trial, before, before.sample_s / trial.sample_s)}"
    if not math.isnan(trial.sample_j):
        yield f"{1 / trial.sample_j:.4g} samples/J, {_gain(trial, before, before.sample_j / trial.sample_j)}"


def _gain(trial: Trial, before: Trial, ratio: float) -> str:
    if trial is before:
        return "by the input as it is"
    return f"{ratio:.2f} times those of the input as it is (+-{math.hypot(trial.error, before.error):.0%})"


def _tables(keys: Keys) -> Tables:
    """What the dotted keys say."""
    return reduce(deep, starmap(nested, keys.items()), {})
