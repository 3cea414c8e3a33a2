"""Power traces: files in the layout of Google's PowerData2019, and files with a column for each site."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import is_pattern, matching, replace_file
from hpctrip.sim.series import Column, Series, joined, layout, rows_of
from hpctrip.sim.stated_units import POWER, PowerUnit, power_unit
from hpctrip.sim.times import SHOWN_TWICE, TimeUnit, time_column

ORIGIN = (
    'Google\'s PowerData2019 is at "gs://powerdata_2019/cell*.csv.gz" (gsutil -m cp); for a file of your own, with a '
    'column for each site, set power.kind = "csv"'
)
"""Source of real traces; hpctrip comes without any."""
COLUMNS = {
    "production": ("production_power_util", "bad_production_power_data"),
    "measured": ("measured_power_util", "bad_measurement_data"),
}
"""{what to read: (utilisation column, flag column)} of the official files."""
Flags = Literal["true-is-bad", "true-is-good"]
"""Meaning of `true` in a flag column (see `read_trace_files`)."""
TRACE_START_US = 600_000_000
"""`time` of the first official row: microseconds since 600 s before the trace's start."""


def trace_files(path: str | Path) -> list[Path]:
    """The files that `path` means: one file, a glob, or a folder (its `cell*.csv` and `cell*.csv.gz`), sorted."""
    paths = matching(path)
    missing = "no file matches this pattern" if is_pattern(str(path)) else "no such file or folder"
    if len(paths) == 1 and paths[0].is_dir():
        paths = [file for file in paths[0].glob("cell*") if file.name.endswith((".csv", ".csv.gz"))]
        missing = "no cell*.csv or cell*.csv.gz in this folder"
    if not paths:
        raise InputError(str(path), missing, ORIGIN)
    return sorted(paths)


def read_trace_files(
    path: str | Path,
    column: str = "production",
    flags: Flags = "true-is-bad",
    time_unit: TimeUnit = "us",
    timezone: str = "UTC",
    longest_gap_s: float = 6 * 3600.0,
) -> Series:
    """Read the power utilisation of domains, in [0, 1]: a folder, file or glob, see `trace_files`.

    `column` is "production" or "measured". Each file holds one or more domains, with `time` (a number in `time_unit`)
    or `datetime` (ISO 8601; without an offset in `timezone`), `cell`, `pdu`, the utilisation column, and perhaps its
    flag column. A series is named after its domain, as in "cella_pdu6"; they are sorted by cell, then by number, and
    have values at the multiples of their median step (official: 300 s), on which every row must lie.

    Flags: true means bad, unless `flags` says "true-is-good". Google's PDF says the latter ("when false, indicates low
    confidence"), Google's own analysis notebook drops the true ones; the default follows the notebook. No flag column:
    all samples are good. A bad sample is a missing one. A domain of which more than half is flagged bad is refused: its
    flags are the other way round, or it is of no use.

    Raises InputError naming file, line and value.
    """
    rows = pd.concat([_rows(file, column, flags, time_unit, timezone) for file in trace_files(path)])
    for name, bad in rows.groupby("series").bad:
        if 2 * bad.sum() > len(bad):
            other = next(meaning for meaning in get_args(Flags) if meaning != flags)
            raise InputError(
                rows.place[rows.series == name].iloc[0],
                f"{bad.sum()} of {len(bad)} samples of {name} are flagged bad ({flags})",
                f'if its flags are the other way round, set flags = "{other}"; else leave the domain out',
            )
    domains = sorted({*zip(rows.cell, rows.pdu, strict=True)}, key=lambda key: (key[0], len(key[1]), key[1]))
    names = [f"cell{cell}_{pdu}" for cell, pdu in domains]  # pdu9 before pdu10
    traces = joined(rows, str(path), longest_gap_s, names, SHOWN_TWICE if rows.is_dated.all() else "")
    off = rows[(rows.time_us - traces.time_us[0]) % traces.step_us != 0]
    if len(off):
        row = off.iloc[0]
        problem = (
            f"the time of {row.series} is not a whole number of {traces.step_s:g} s steps after the first"
        )
        raise InputError(f"{row.place}, line {row.line}", problem, "give all samples on one grid")
    return replace(traces.on_grid(), cells=[cell for cell, _ in domains])


def _rows(path: Path, column: str, flags: Flags, time_unit: TimeUnit, timezone: str) -> pd.DataFrame:
    """The rows of one file, with the columns cell, pdu, and bad: whether a sample is flagged so."""
    table = read_table(path, may_comment=True)
    util_name, bad_name = COLUMNS[column]
    for other, (name, _) in COLUMNS.items():
        if name in table.columns and util_name not in table.columns:
            problem = f"has no column {util_name}, only {name}"
            raise InputError(table.place, problem, f'set column = "{other}" to use that one')
    time_name = "datetime" if "datetime" in table.columns and "time" not in table.columns else "time"
    table.require(time_name, "cell", "pdu", util_name)
    if len(table.lines) == 0:
        raise InputError(str(path), "no rows", f"the file is cut short; get it again: {ORIGIN}")
    bad = np.zeros(len(table.lines), dtype=bool)
    if bad_name in table.columns:
        bad = table.flags(bad_name, empty=flags == "true-is-good") == (flags == "true-is-bad")
    cells, pdus = table.texts("cell"), table.texts("pdu")
    names = [f"cell{cell}_{pdu}" for cell, pdu in zip(cells, pdus, strict=True)]
    unit = time_unit if time_name == "time" else None
    rows = rows_of(table, {util_name: Column(names, high=1.0)}, time_name, timezone, unit, missing=bad)
    return rows.assign(cell=cells, pdu=pdus, bad=bad)


def read_site_power(
    path: str, unit: PowerUnit | None, timezone: str = "UTC", longest_gap_s: float = 6 * 3600.0
) -> tuple[Series, np.ndarray]:
    """Read a CSV file with a column of times, `time` (ISO 8601; without an offset in `timezone`) or `time_s` (seconds),
    and power, whose column's name ends in its unit as in `oslo_kw` or `oslo (MW)`, or which is in `unit`: a column for
    each site, or `site` and one column (`layout`).

    Returns the series, in watts or as a fraction, and which of them are fractions, [Z] bool. Raises InputError naming
    file, line and value.
    """
    table = read_table(path, f"power.path = {path!r}", may_comment=True)
    if "pdu" in table.columns:
        problem = f"has no column for each site, but {', '.join(table.columns)}"
        raise InputError(table.place, problem, 'power.kind = "trace" reads the layout of PowerData2019')
    if len(table.lines) == 0:
        raise InputError(table.place, "holds no power", "give two rows or more")
    time = time_column(table)
    values, is_fraction = {}, {}
    for column, series in layout(table, time).items():
        site, of = power_unit(table.place, column, unit)
        series = site if isinstance(series, str) else series
        values[column] = Column(series, POWER[of], high=1.0 if of == "fraction" else 1e15)
        is_fraction |= dict.fromkeys([series] if isinstance(series, str) else series, of == "fraction")
    if len(is_fraction) < len(values):
        problem = f"has two columns of one site among {', '.join(values)}"
        raise InputError(table.place, problem, "leave one out")
    rows = rows_of(table, values, time, timezone)
    hint = SHOWN_TWICE if rows.is_dated.all() else ""
    traces = joined(rows, table.place, longest_gap_s, [*is_fraction], hint)
    return traces, np.array([*is_fraction.values()])


def write_csv_gz(table: pd.DataFrame, path: Path, comment: str = "") -> None:
    """Write a table as gzipped CSV, below a first line `# comment` if given. The same table gives the same bytes."""
    text = (f"# {comment}\n" if comment else "") + table.to_csv(index=False, lineterminator="\n")
    replace_file(path, gzip.compress(text.encode(), mtime=0))
