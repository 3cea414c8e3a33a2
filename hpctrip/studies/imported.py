"""Imports runs of other machines by identity: the row of a ledger and the curve of each become one small CSV file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import replace_file
from hpctrip.base.text import printable, shown
from hpctrip.base.units import J_PER_KWH
from hpctrip.config.identity import uncompared_keys
from hpctrip.config.inputs import Tables, resolved
from hpctrip.record import schema
from hpctrip.record.formats import csv_bytes
from hpctrip.record.reader import Run
from hpctrip.sim.quantities import QUANTITIES
from hpctrip.studies.grid import Entry

CURVE_COLUMNS = ("round", "clock_s", "accuracy", "num_sites")
ROW_COLUMNS = ("rounds", "clock_s", "digest", "wall_s", "synthetic", "made_with", "reason")
"""Columns of a ledger that are imported with a run."""
TOTALS = {quantity.total: quantity for quantity in QUANTITIES}
"""{column of a ledger, which may be absent: what a whole run draws, emits and costs}."""
_AS_WRITTEN = "import both files of one study as they were written"
"""Hint of errors in which a row and its curve do not agree."""


def import_runs(ledger: str, entries: Sequence[Entry], folder: Path) -> str:
    """Write the finished rows of a ledger that are runs of a grid as files in `folder`.

    The curves of X.csv are in X_curves.csv beside it, or else in curves.csv. Returns one line of report. Raises
    InputError if a row and its curve do not agree, or if no row is a run of the grid.
    """
    path = Path(ledger)
    own = path.with_name(f"{path.stem}_curves.csv")
    rows, curves = read_table(path), read_table(own if own.exists() else path.with_name("curves.csv"))
    rows.require("run", "identity", "status", "accuracy", *ROW_COLUMNS)
    identities, all_curves = np.array(curves.column("identity")), curve_of(curves)
    grid = {entry.identity: entry for entry in entries}
    imported, without_curve, others = 0, 0, []
    for number, identity in enumerate(rows.columns["identity"]):
        if rows.columns["status"][number] != "finished":
            continue
        curve = all_curves[identities == identity]
        if identity not in grid:
            others.append(number)
        elif curve.empty:
            without_curve += 1
        else:
            # an unknown number is empty, or NaN where none of its column is known
            texts = {name: each[number] for name, each in rows.columns.items() if each[number] != "NaN"}
            row = {name: texts.get(name, "") for name in (*ROW_COLUMNS, *TOTALS) if name in rows.columns}
            place = f"{ledger}, line {rows.lines[number]}"
            _check(row, curve, grid[identity], place)
            accuracy, best = texts.get("accuracy", ""), float(curve["accuracy"].max())
            if accuracy != number_text(best):
                problem = f"came to the accuracy {shown(accuracy)}, by its curve to {best:g}"
                raise InputError(place, problem, _AS_WRITTEN)
            replace_file(folder / f"{identity}.csv", f"#{json.dumps(row)}\n".encode() + csv_bytes(curve))
            imported += 1
    if not imported and not without_curve:
        problem = (
            f"none of its {len(others)} finished rows is a run of this study: {_why(rows, others, entries)}"
        )
        raise InputError(ledger, problem, "import the ledger of the same study, made by the same hpctrip")
    report = f"{ledger}: {imported} finished runs imported"
    if others:
        report += f"; {len(others)} rows were skipped: {_why(rows, others, entries)}"
    if without_curve:
        hint = "start the study once more where they were made, which writes it"
        report += f"; {without_curve} have no curve yet: {hint}"
    return report


def _why(rows: Table, others: Sequence[int], entries: Sequence[Entry]) -> str:
    """Why the rows of a ledger with these numbers are no runs of a grid, for the first that tells."""
    by_name = {entry.name: entry for entry in entries}
    for number in others:
        row = {name: values[number] for name, values in rows.columns.items()}
        if (entry := by_name.get(row["run"])) and (how := entry.made_otherwise(row)):
            return f"{printable(entry.name)} has {how}"
    return "input, data or code differ"


def number_text(value: float) -> str:
    """A number as a ledger has it."""
    return "" if math.isnan(value) else str(value)


def curve_of(table: Table) -> pd.DataFrame:
    """The columns `CURVE_COLUMNS` of a table. Raises InputError for invalid values."""
    table.require(*CURVE_COLUMNS)
    columns = {name: table.integers(name) for name in ("round", "num_sites")}
    columns |= {name: table.numbers(name, may_lack=name == "accuracy") for name in ("clock_s", "accuracy")}
    return pd.DataFrame(columns)[list(CURVE_COLUMNS)]


def _check(row: Mapping[str, str], curve: pd.DataFrame, entry: Entry, place: str) -> None:
    """Raise InputError if a row has other rounds, or another time-to-accuracy, than its curve."""
    rounds = curve["round"].to_numpy()
    if row["rounds"] != str(len(curve)) or not len(curve) or (rounds != np.arange(1, len(curve) + 1)).any():
        problem = f"has {row['rounds']} rounds, its curve {len(curve)}"
        raise InputError(place, problem, _AS_WRITTEN)
    row_s, curve_s = row["clock_s"], _time_to_accuracy(curve, entry)
    if row_s != number_text(curve_s):
        problem = f"reached its target at {row_s or 'no time'}, by its curve at {curve_s:g} s"
        raise InputError(place, problem, _AS_WRITTEN)


def _time_to_accuracy(curve: pd.DataFrame, entry: Entry) -> float:
    pairs = zip(curve["clock_s"].tolist(), curve["accuracy"].tolist(), strict=True)
    return schema.time_to_accuracy_s(pairs, entry.run_input.experiment.stop.target)


def read_imported(path: Path, entry: Entry) -> Run:
    """Read an imported run: the input comes from the study, end and curve from the file; tables of sites are empty.
    Raises InputError if the file is damaged."""
    table = read_table(path, may_comment=True)
    curve = curve_of(table)
    try:
        return run_of_row(path, entry, json.loads(table.comment.removeprefix("#")), curve)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(str(path), "is damaged", "remove it and import again") from None


def run_of_row(path: Path, entry: Entry, of_ledger: Mapping[str, Any], curve: pd.DataFrame) -> Run:
    """A finished run from its row in a ledger, whose values may be texts, and its curve; its tables of sites are empty.
    Raises InputError where they do not agree, and KeyError or ValueError for no such row."""
    row = {key: number_text(value) if isinstance(value, float) else value for key, value in of_ledger.items()}
    totals = {name: float(row.get(name) or "nan") for name in TOTALS}
    row = {name: str(row[name]) for name in ROW_COLUMNS}
    wall_s = float(row["wall_s"] or "nan")
    _check(row, curve, entry, str(path))
    meta = {
        "stop_reason": printable(row["reason"]),
        "params_digest": printable(row["digest"]),
        "synthetic_data": "data" in row["synthetic"],
        "synthetic_power": "power" in row["synthetic"],
        "made_with": printable(row["made_with"]),
        "wall_s": wall_s,
        **totals,
    }
    return _run_of(entry, path, meta, curve)


def pretended(entry: Entry, number: int) -> Run:
    """A run of a grid as it might end, after two rounds, to try what can be made of it. `number` makes its times
    others than those of other runs."""
    end_s, target = 3600.0 * (1 + number / 100), entry.run_input.experiment.stop.target
    best, k = (
        0.5 if math.isnan(target) else target,
        getattr(entry.run_input.experiment.policy, "k", None) or 1,
    )
    columns = {"round": [1, 2], "clock_s": [end_s / 2, end_s], "accuracy": [best / 2, best], "num_sites": k}
    curve = pd.DataFrame(columns)
    run = _run_of(entry, Path(entry.name), {}, curve)
    return replace(run, rounds=run.rounds.assign(energy_j=J_PER_KWH), sites=pd.DataFrame({"site": [0]}))


def _run_of(entry: Entry, path: Path, meta: Tables, curve: pd.DataFrame) -> Run:
    """A run whose input the study knows, and all else `meta` and its curve."""
    run_input, experiment = entry.run_input, entry.run_input.experiment
    known = {
        "scenario": experiment.name,
        "label": experiment.label or "",
        "policy": experiment.policy.kind,
        "seed": experiment.seed,
        "target_accuracy": experiment.stop.target,
        "time_to_accuracy_s": _time_to_accuracy(curve, entry),
        "neutral_keys": uncompared_keys(experiment),
        "policy_keys": run_input.policy_keys,
        "sources": list(map(str, entry.sources)),
    }
    return run_of_curve(path, known | meta, curve, resolved(experiment), run_input.toml)


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
