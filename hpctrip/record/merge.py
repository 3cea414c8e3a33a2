"""Many runs, one row each: the table that a sweep is read from, as HDF5 and as CSV."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.base.identity import differing
from hpctrip.base.output import replace_file
from hpctrip.record import schema
from hpctrip.record.reader import Run
from hpctrip.record.schema import Column
from hpctrip.record.writer import write_table

FORMAT = "hpctrip table"

COLUMNS = {
    "path": ("1", "results file"),
    "scenario": ("1", "name of the scenario"),
    "policy": ("1", "policy"),
    "seed": ("1", "seed of all named streams"),
    "status": ("1", "running, finished or failed"),
    "stop_reason": ("1", "the rule that ended the run"),
    "num_rounds": ("rounds", "finished rounds"),
    "clock_s": ("s", "simulated time at the end of the last round"),
    "target_accuracy": ("1", "held-out accuracy to reach (NaN: none)"),
    "time_to_accuracy_s": ("s", "simulated time when it was reached (NaN: it was not)"),
    "best_accuracy": ("1", "best held-out accuracy (NaN: never evaluated)"),
    "wall_s": ("s", "wall time of all rounds"),
    "params_digest": ("1", "digest of the global model after the last round"),
    "synthetic_data": ("1", "1: the training data were made up"),
    "synthetic_power": ("1", "1: the power of the sites was made up"),
}
"""{column: (unit, description)}. Besides, every input key that can change a result and is not the same in all runs is a
column `input.KEY`."""


_NAMED = ("seed", "policy.kind", "stop.target_accuracy")  # input keys that COLUMNS has already


def merged(runs: list[Run]) -> dict[str, Column]:
    """One row a run, sorted by policy, then by the varying input keys, then by seed. InputError for a damaged run."""
    if faults := [fault for run in runs for fault in run.schema_faults()]:
        raise InputError(faults=faults)
    inputs = [run.settings for run in runs]
    varying = [key for key in differing(inputs) if key not in _NAMED]
    rows = [
        _row(run) | {f"input.{key}": settings.get(key) for key in varying}
        for run, settings in zip(runs, inputs, strict=True)
    ]
    order = ["policy", *(f"input.{key}" for key in varying), "seed", "path"]
    values = {name: _plain([row[name] for row in rows]) for name in rows[0]}
    at = pd.DataFrame({name: values[name] for name in order}).sort_values(order, kind="stable").index
    return {
        name: Column(values[name][at], *COLUMNS.get(name, ("1", f"the input key {name[6:]}")))
        for name in values
    }


def write_merged(path: str | Path, runs: list[Run]) -> list[Path]:
    """Write the table to `path` (HDF5, group /runs) and beside it as CSV; returns both. Replaces an earlier table, but
    raises InputError rather than replace anything else."""
    path = Path(path)
    if path.exists() and not _is_table(path):
        raise InputError(str(path), "exists and is no merged table", "choose another name for the table")
    table = merged(runs)
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["format"], file.attrs["format_version"] = FORMAT, schema.FORMAT_VERSION
        write_table(file, "runs", table, "one row a run")
    replace_file(path, buffer.getvalue())
    csv = path.with_suffix(".csv")
    frame = pd.DataFrame({name: column.values for name, column in table.items()})
    replace_file(csv, frame.to_csv(index=False, lineterminator="\n").encode())
    return [path, csv]


def _row(run: Run) -> dict[str, Any]:
    meta = {name: attribute.default for name, attribute in schema.ATTRIBUTES.items()} | run.meta
    return {name: meta.get(name) for name in COLUMNS} | {
        "path": str(run.path),
        "policy": str(run.input.get("policy", {}).get("kind", "")),
        "num_rounds": len(run.rounds),
        "clock_s": float(run.rounds["clock_s"].max()),
        "time_to_accuracy_s": run.time_to_accuracy_s,
        "best_accuracy": float(run.rounds["accuracy"].max()),
        "wall_s": float(run.rounds["wall_s"].sum()),
        "synthetic_data": int(meta["synthetic_data"]),
        "synthetic_power": int(meta["synthetic_power"]),
    }


def _plain(values: list[Any]) -> np.ndarray:
    """Numbers where all are numbers (absent: NaN), else texts (absent: empty)."""
    if all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values
    ):
        numbers = np.array([np.nan if value is None else value for value in values])
        return numbers
    return np.array(
        ["" if v is None else v if isinstance(v, str) else json.dumps(v) for v in values], dtype=object
    )


def _is_table(path: Path) -> bool:
    try:
        with h5py.File(path, "r") as file:
            return file.attrs.get("format") == FORMAT
    except OSError:
        return False
