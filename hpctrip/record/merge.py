"""Merges runs into one table with a row per run, as HDF5 and CSV; formats frames and the reports of sites."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from pydantic_core import to_json

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import check_suffix, check_writable, json_text, refuse_inputs, replace_file
from hpctrip.base.text import aligned, encodable, printable
from hpctrip.config.identity import differing
from hpctrip.record import schema
from hpctrip.record.lock import SUFFIXES, OutputLock
from hpctrip.record.open_checked import TABLE, open_checked
from hpctrip.record.reader import Run
from hpctrip.record.results_file import ResultsFile
from hpctrip.record.schema import Column
from hpctrip.record.show import facts_of
from hpctrip.record.site_report import by_site, table_of
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
    refuse_inputs([path, as_csv], [run.path for run in runs])
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


def site_reports(runs: Sequence[ResultsFile], form: str) -> str:
    """The reports of the sites of runs as text: aligned columns, or of the form json, csv or latex (a table of
    booktabs). InputError where one has no finished round, or no sites."""
    for run in runs:
        if not isinstance(run, Run) or run.rounds.empty:
            problem = (
                "holds no finished round" if isinstance(run, Run) else "is of a cluster, which has no sites"
            )
            raise InputError(str(run.path), problem, "leave out --sites")
        if faults := run.schema_faults() or [*run.structure_faults()]:
            raise InputError(faults=faults)
    if form == "json":
        return json_text(
            {"runs": [{"path": run.path, "sites": by_site(run).to_dict("records")} for run in runs]}
        )
    if form == "csv":
        reports = [by_site(run).assign(**({"path": str(run.path)} if len(runs) > 1 else {})) for run in runs]
        return csv_bytes(pd.concat(reports, ignore_index=True)).decode().rstrip("\n")
    lines: list[str] = []
    for run in runs:
        made_up = [name for name in ("data", "power") if run.meta[f"synthetic_{name}"]]
        synthetic = ", ".join([*made_up, *run.meta["synthetic_signals"]])
        title = printable(f"{run.path}{f': synthetic {synthetic}' if synthetic else ''}; simulated time")
        table = table_of(run, by_site(run))
        lines += [f"% {title}", *latex_table(*table)] if form == "latex" else [title, *aligned(*table)]
    return "\n".join(lines)


def latex_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table for LaTeX with the package booktabs, its first column to the left."""
    cells = pd.DataFrame([*rows], columns=[*head])
    table = cells.to_latex(index=False, escape=True, column_format=f"l{'r' * (len(head) - 1)}")
    return table.replace("> ", "$>$ ").splitlines()  # > is another sign in some fonts


def tex(text: str) -> str:
    """A text as LaTeX prints it."""
    words = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        ">": "$>$",
        "<": "$<$",
    }
    return "".join(words.get(sign, f"\\{sign}" if sign in "&%$#_{}" else sign) for sign in text)


def csv_bytes(table: pd.DataFrame | Mapping[str, np.ndarray], with_header: bool = True) -> bytes:
    """Format the columns of a table as UTF-8 CSV. Numbers keep all digits; NaN is an empty cell.

    Programs guess the type of a column from its cells. So NaN is written as such where a column has no other number,
    and infinity as 1e999, which is read as infinity where the word would be a text or a date.
    Unprintable characters are escaped (`printable`), because programs differ in which of them end a line. Texts that a
    spreadsheet would evaluate (they begin with = + - or @ and are no numbers) get a leading apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if with_header:
        writer.writerow(map(cell, table))
    writer.writerows(zip(*(_cells(np.asarray(table[name])) for name in table), strict=True))
    return text.getvalue().encode()


def _cells(values: np.ndarray) -> list[Any]:
    """The values as the cells of a CSV file: numbers as Python writes them, NaN as nothing."""
    if values.dtype.kind in "OUT":
        return list(map(cache(cell), values))  # columns repeat few texts
    if values.dtype.kind != "f" or not len(values):
        return values.tolist()
    # JSON has the same digits in a fifth of the time, and another form for the smallest and largest numbers
    cells = to_json(values.tolist()).decode()[1:-1].split(",")
    size = np.abs(values)
    unknown = "NaN" if np.isnan(values).all() else ""
    for row in np.flatnonzero(~((size >= 1e-4) & (size < 1e16))).tolist():
        cells[row] = unknown if np.isnan(values[row]) else repr(values[row].item()).replace("inf", "1e999")
    return cells


def cell(text: str) -> str:
    """A text as it stands in a CSV file, see `csv_bytes`."""
    text = printable(text, 10 * len(text))  # the longest escape has 10 characters
    if text.startswith(("=", "+", "-", "@")):
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text
