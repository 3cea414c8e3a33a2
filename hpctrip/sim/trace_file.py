"""One file of a power trace, in the layout of Google's PowerData2019: read, checked, written."""

from __future__ import annotations

import difflib
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import replace_file

ORIGIN = (
    'Google\'s PowerData2019 is at "gs://powerdata_2019/cell*.csv.gz" (gsutil -m cp); files of your own need the '
    "columns time, cell, pdu and production_power_util"
)
"""Where traces come from; hpctrip itself brings none as files."""
COLUMNS = {
    "production": ("production_power_util", "bad_production_power_data"),
    "measured": ("measured_power_util", "bad_measurement_data"),
}
"""{what to read: (utilisation column, flag column)} of the official files."""
Flags = Literal["true-is-bad", "true-is-good"]
"""What `true` in a flag column means (see `hpctrip.sim.traces.read_trace_files`)."""
TRACE_START_US = 600_000_000
"""`time` of the first official row: microseconds since 600 s before the trace's start."""


@dataclass(frozen=True)
class TraceFile:
    """One file as read."""

    path: Path
    rows: pd.DataFrame
    """cell, pdu, time_us, util (NaN: bad or missing), bad; indexed by line number."""
    step_us: int
    """Its median time step, microseconds; every row lies on this grid."""
    synthetic: bool
    """Whether its name or its first line says so."""


def read_trace_file(path: Path, column: str, flags: Flags) -> TraceFile:
    """One file, checked by itself. Arguments as in `hpctrip.sim.traces.read_trace_files`. InputError names the file,
    the line and the value that is wrong.
    """
    table = read_table(path, may_comment=True)
    util_name, bad_name = COLUMNS[column]
    time_name = "datetime" if "datetime" in table.columns and "time" not in table.columns else "time"
    _require(table, [time_name, "cell", "pdu", util_name])
    if len(table.lines) == 0:
        raise InputError(str(path), "no rows", f"the file is cut short; get it again: {ORIGIN}")

    util = table.numbers(util_name, may_lack=True)
    bad = np.zeros(len(util), dtype=bool)
    if bad_name in table.columns:
        bad = table.flags(bad_name, empty=flags == "true-is-good") == (flags == "true-is-bad")
        util = np.where(bad, np.nan, util)
    table.refuse(
        util_name,
        (util < 0) | (util > 1),
        "is outside 0..1",
        "utilisation is a fraction, not a percentage",
    )
    rows = pd.DataFrame(
        {
            "cell": table.texts("cell"),
            "pdu": table.texts("pdu"),
            "time_us": table.integers("time") if time_name == "time" else table.times_us("datetime"),
            "util": util,
            "bad": bad,
        },
        index=table.lines,
    )
    synthetic = "synthetic" in table.comment.lower() or "synthetic" in path.name.lower()
    return TraceFile(path, rows, _step_us(table, time_name, rows.time_us.to_numpy()), synthetic)


def _step_us(table: Table, time_name: str, time_us: np.ndarray) -> int:
    """The median time step, on whose grid every row must lie."""
    steps = np.diff(np.unique(time_us))
    if len(steps) == 0:
        raise InputError(table.place, "all rows have the same time", "a trace needs two steps or more")
    step_us = int(np.quantile(steps, 0.5, method="lower"))
    num_steps = (time_us.max() - time_us.min()) // step_us + 1
    if num_steps > 10 * len(time_us):
        raise InputError(
            table.place,
            f"{len(time_us)} rows spread over {num_steps} steps of {step_us / 1e6:g} s: "
            "nearly all samples are missing",
            "check the first and last time: microseconds since 600 s before the trace's start",
        )
    off_grid = (time_us - time_us.min()) % step_us != 0
    table.refuse(
        time_name, off_grid, f"is not a whole number of {step_us / 1e6:g} s steps after the first row"
    )
    return step_us


def _require(table: Table, names: list[str]) -> None:
    """`Table.require`; where only the utilisation asked for is not there, the error says which one is."""
    missing = [name for name in names if name not in table.columns]
    others = set(table.columns) - {name for pair in COLUMNS.values() for name in pair}
    if missing == names[-1:] and not difflib.get_close_matches(missing[0], others, n=1, cutoff=0.8):
        for column, (name, _) in COLUMNS.items():
            if name in table.columns:
                raise InputError(
                    table.place,
                    f"has no column {missing[0]}, only {name}",
                    f'set column = "{column}" to use that one',
                )
    table.require(*names)


def write_csv_gz(table: pd.DataFrame, path: Path, comment: str = "") -> None:
    """Write a table as gzipped CSV, below a first line `# comment` if given. The same table gives the same bytes."""
    text = (f"# {comment}\n" if comment else "") + table.to_csv(index=False, lineterminator="\n")
    replace_file(path, gzip.compress(text.encode(), mtime=0))
