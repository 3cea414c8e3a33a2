"""Merges runs into one table with a row per run, as HDF5 and CSV."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import check_suffix, check_writable, refuse_inputs, replace_file
from hpctrip.base.text import encodable
from hpctrip.config.identity import differing
from hpctrip.record import schema
from hpctrip.record.formats import csv_bytes
from hpctrip.record.lock import SUFFIXES, OutputLock
from hpctrip.record.open_checked import TABLE, open_checked
from hpctrip.record.reader import Run
from hpctrip.record.schema import Column
from hpctrip.record.show import facts_of
from hpctrip.record.writer import write_table

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
    "time_to_accuracy_s": ("s", "simulated time at which it was reached (NaN: not reached)"),
    "best_accuracy": ("1", "best held-out accuracy (NaN: never evaluated)"),
    "wall_s": ("s", "wall time of all rounds"),
    "params_digest": ("1", "digest of the global model after the last round"),
    "synthetic_data": ("1", "1: the training data are synthetic"),
    "synthetic_power": ("1", "1: the power of the sites is synthetic"),
}
"""{column: (unit, description)}. Besides, every input key that can change a result and is not the same in all runs is a
column `input.KEY`."""


_NAMED = ("seed", "policy.kind", "stop.target_accuracy")  # input keys that COLUMNS has already


def merged(runs: list[Run]) -> dict[str, Column]:
    """The table of runs, sorted by policy, varying input keys and seed."""
    inputs = [run.settings for run in runs]
    varying = [key for key in differing(inputs) if key not in _NAMED]
    rows = []
    for run, settings in zip(runs, inputs, strict=True):
        facts = facts_of(run)
        facts["path"] = encodable(facts["path"])
        facts |= {name: int(facts[name]) for name in ("synthetic_data", "synthetic_power")}
        varied = {f"input.{key}": settings.get(key) for key in varying}
        rows.append({name: facts[name] for name in COLUMNS} | varied)
    order = ["policy", *(f"input.{key}" for key in varying), "seed", "path"]
    values = {name: _plain([row[name] for row in rows]) for name in rows[0]}
    at = pd.DataFrame({name: values[name] for name in order}).sort_values(order, kind="stable").index
    return {
        name: Column(values[name][at], *COLUMNS.get(name, ("1", f"the input key {name[6:]}")))
        for name in values
    }


def write_merged(path: str | Path, runs: list[Run], overwrite: bool = False) -> list[Path]:
    """Write the table to `path` (HDF5, group /runs) and beside it as CSV; returns both paths.

    It replaces an earlier table with its CSV. Raises InputError where another file exists and `overwrite` is false, and
    where a job is writing a results file of this name.
    """
    check_suffix(path, SUFFIXES)
    path, as_csv = Path(path), Path(path).with_suffix(".csv")
    refuse_inputs([path, as_csv], [run.path for run in runs], "choose another name")
    for file in (path, as_csv):
        check_writable(file, overwrite=True)
    table = merged(runs)
    text = csv_bytes({name: column.values for name, column in table.items()})
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file.attrs["format"], file.attrs["format_version"] = np.bytes_(TABLE), schema.RUN.version
        write_table(file, "runs", table, "one row per run")
    with OutputLock(path):
        if not overwrite:
            _refuse_others(path, as_csv)
        replace_file(path, buffer.getvalue())
        replace_file(as_csv, text)
    return [path, as_csv]


def _plain(values: list[Any]) -> np.ndarray:
    """The values as numbers if all are (None: NaN), else as texts (None: empty)."""
    if all(value is None or type(value) in (int, float) for value in values):
        return np.array([np.nan if value is None else value for value in values])
    return np.array(list(map(setting_text, values)), dtype=object)


def setting_text(value: Any) -> str:
    """The value of an input key as text; empty where the key is absent."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _refuse_others(path: Path, as_csv: Path) -> None:
    """Raise InputError where a file exists that is not a table or its CSV."""
    hint = "choose another name for the table, or --overwrite"
    if os.path.lexists(path):
        try:
            with open_checked(path, TABLE):
                return
        except InputError:
            raise InputError(str(path), "exists and is not a merged table", hint) from None
    if os.path.lexists(as_csv):
        raise InputError(str(as_csv), f"exists and is not part of a merged table {path}", hint)
