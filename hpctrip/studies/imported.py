"""Imports runs of other machines by identity: the row of a ledger and the curve of each become one small CSV file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import replace_file
from hpctrip.base.text import printable, shown
from hpctrip.config.identity import neutral_keys
from hpctrip.config.inputs import Tables, resolved
from hpctrip.record import schema
from hpctrip.record.merge import csv_bytes
from hpctrip.record.reader import Run
from hpctrip.studies.grid import Entry

CURVE_COLUMNS = ("round", "clock_s", "accuracy", "num_sites")
ROW_COLUMNS = ("rounds", "clock_s", "digest", "wall_s", "synthetic", "made_with", "reason")
"""Columns of a ledger that are imported with a run."""
_DIGEST = re.compile("[0-9a-f]{16}")
_AS_WRITTEN = "import both files of one study as they were written"
"""Hint of errors in which a row and its curve do not agree."""

Row = Mapping[str, str]


def curves_beside(ledger: str | Path) -> Path:
    """Path of the table with the curves of a ledger's finished runs: X_curves.csv beside X.csv, or else curves.csv."""
    path = Path(ledger)
    own = path.with_name(f"{path.stem}_curves.csv")
    return own if own.exists() else path.with_name("curves.csv")


def import_runs(ledger: str, entries: Sequence[Entry], folder: Path) -> tuple[int, int, int]:
    """Write the finished rows of a ledger that are runs of a grid as files in `folder`.

    Returns the numbers of rows that were written, that belong to other inputs, and that have no curve. Raises
    InputError if a row and its curve do not agree.
    """
    rows, lines = read_table(ledger), read_table(curves_beside(ledger))
    rows.require("identity", "status", "accuracy", *ROW_COLUMNS)
    lines.require("identity", *CURVE_COLUMNS)
    grid = {entry.identity: entry for entry in entries}
    curve_identities = np.array(lines.columns["identity"])
    written, others, bare = 0, 0, 0
    for number, identity in enumerate(rows.columns["identity"]):
        if rows.columns["status"][number] != "finished":
            continue
        if identity not in grid:
            others += 1
            continue
        at = np.flatnonzero(curve_identities == identity)
        if not len(at):
            bare += 1
            continue
        row, curve = {name: rows.columns[name][number] for name in ROW_COLUMNS}, _curve(lines, at)
        place, accuracy = f"{ledger}, line {rows.lines[number]}", rows.columns["accuracy"][number]
        _check(row, curve, grid[identity], place)
        best = float(curve["accuracy"].max())
        if accuracy != ("" if math.isnan(best) else str(best)):
            problem = f"came to the accuracy {shown(accuracy)}, by its curve to {best:g}"
            raise InputError(place, problem, _AS_WRITTEN)
        replace_file(folder / f"{identity}.csv", f"#{json.dumps(row)}\n".encode() + csv_bytes(curve))
        written += 1
    return written, others, bare


def _curve(lines: Table, at: np.ndarray) -> pd.DataFrame:
    """The rows `at` of a table of curves."""
    integers = {name: lines.integers(name) for name in ("round", "num_sites")}
    floats = {name: lines.numbers(name, may_lack=name == "accuracy") for name in ("clock_s", "accuracy")}
    return pd.DataFrame({name: (integers | floats)[name][at] for name in CURVE_COLUMNS})


def _check(row: Row, curve: pd.DataFrame, entry: Entry, place: str) -> None:
    rounds = curve["round"].to_numpy()
    if row["rounds"] != str(len(curve)) or not len(curve) or (rounds != np.arange(1, len(curve) + 1)).any():
        problem = f"has {row['rounds']} rounds, its curve {len(curve)}"
        raise InputError(place, problem, _AS_WRITTEN)
    row_s, curve_s = row["clock_s"], _time_to_accuracy(curve, entry)
    if row_s != ("" if math.isnan(curve_s) else str(curve_s)):
        problem = f"reached its target at {row_s or 'no time'}, by its curve at {curve_s:g} s"
        raise InputError(place, problem, _AS_WRITTEN)
    sites = entry.run_input.experiment.num_sites()
    faults = {
        "has a curve whose clock_s does not rise": (np.diff(curve["clock_s"], prepend=0.0) <= 0).any(),
        f"has a curve of other num_sites than 1 to {sites}": not curve["num_sites"].between(1, sites).all(),
        "has a curve of accuracies beyond 0 to 1": not curve["accuracy"].dropna().between(0, 1).all(),
        f"has the digest {shown(row['digest'])}, which is none": not _DIGEST.fullmatch(row["digest"]),
    }
    for problem, applies in faults.items():
        if applies:
            raise InputError(place, problem, _AS_WRITTEN)


def _time_to_accuracy(curve: pd.DataFrame, entry: Entry) -> float:
    target = entry.run_input.experiment.stop.target_accuracy
    pairs = zip(curve["clock_s"].tolist(), curve["accuracy"].tolist(), strict=True)
    return math.nan if target is None else schema.time_to_accuracy_s(pairs, target)


def read_imported(path: Path, entry: Entry) -> Run:
    """Read an imported run: the input comes from the study, end and curve from the file; tables of sites are empty.
    Raises InputError if the file is damaged."""
    table = read_table(path, may_comment=True)
    table.require(*CURVE_COLUMNS)
    try:
        row = json.loads(table.comment.removeprefix("#"))
        row = {name: str(row[name]) for name in ROW_COLUMNS}
        wall_s = float(row["wall_s"] or "nan")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(str(path), "is damaged", "remove it and import again") from None
    curve = _curve(table, np.arange(len(table.lines)))
    _check(row, curve, entry, str(path))
    return _run(path, entry, curve, row, wall_s)


def _run(path: Path, entry: Entry, curve: pd.DataFrame, row: Row, wall_s: float) -> Run:
    run_input, experiment = entry.run_input, entry.run_input.experiment
    target = experiment.stop.target_accuracy
    meta = {
        "stop_reason": printable(row["reason"]),
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "params_digest": printable(row["digest"]),
        "target_accuracy": math.nan if target is None else target,
        "time_to_accuracy_s": _time_to_accuracy(curve, entry),
        "synthetic_data": "data" in row["synthetic"],
        "synthetic_power": "power" in row["synthetic"],
        "neutral_keys": neutral_keys(experiment),
        "policy_keys": run_input.policy_keys,
        "made_with": printable(row["made_with"]),
        "sources": list(map(str, entry.sources)),
        "wall_s": wall_s,
    }
    return run_of_curve(path, meta, curve, resolved(experiment), run_input.toml)


def run_of_curve(
    path: Path, meta: Mapping[str, Any], curve: pd.DataFrame, run_input: Tables, input_toml: str = ""
) -> Run:
    """A finished run of which only some attributes, the input and the curve (`CURVE_COLUMNS`) are known. Its other
    tables are empty."""
    start = curve["clock_s"].shift(fill_value=0.0)
    empty = pd.DataFrame()
    return Run(
        path=path,
        meta={name: attribute.default for name, attribute in schema.ATTRIBUTES.items()}
        | {"status": "finished"}
        | dict(meta),
        added=(),
        input_toml=input_toml,
        input=run_input,
        sites=empty,
        rounds=curve.assign(clock_start_s=start, makespan_s=curve["clock_s"] - start),
        cohorts=empty,
        candidates=empty,
    )
