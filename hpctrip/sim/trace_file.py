"""One file of a power trace, in the layout of Google's PowerData2019 (traces/SOURCES.md): read, checked, written."""

from __future__ import annotations

import difflib
import gzip
import io
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from hpctrip.base.component import unknown_name
from hpctrip.base.errors import InputError

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
    table, synthetic = _parse(path)
    util_name, bad_name = COLUMNS[column]
    time_name = "datetime" if "datetime" in table and "time" not in table else "time"
    _require(path, table, [time_name, "cell", "pdu", util_name])
    if table.empty:
        raise InputError(str(path), "no rows", "the file is cut short; get it again (traces/SOURCES.md)")

    if time_name == "time":
        time = _numbers(path, table["time"])
    else:
        time = pd.to_datetime(table["datetime"], errors="coerce").astype("datetime64[us]")
        time = time.astype("int64").where(time.notna())
    for name, wrong in {
        time_name: ~(time.abs() < 2**53),  # missing, or not exact in float64
        "cell": table["cell"].isna(),
        "pdu": table["pdu"].isna(),
    }.items():
        _refuse(path, wrong, table[name], "is missing or not understood")

    util = _numbers(path, table[util_name])
    bad = pd.Series(False, index=table.index)
    if bad_name in table:
        bad = _flags(path, table[bad_name], bad_is=flags == "true-is-bad")
        util = util.mask(bad)
    _refuse(
        path, (util < 0) | (util > 1), util, "is outside 0..1", "utilisation is a fraction, not a percentage"
    )
    rows = pd.DataFrame(
        {
            "cell": table["cell"].astype(str),
            "pdu": table["pdu"].astype(str),
            "time_us": time.astype("int64"),
            "util": util,
            "bad": bad,
        }
    )
    return TraceFile(path, rows, _step_us(path, rows, table[time_name]), synthetic)


def _step_us(path: Path, rows: pd.DataFrame, times: pd.Series) -> int:
    """The median time step, on whose grid every row must lie; `times` are the times as the file gives them."""
    steps = np.diff(np.unique(rows.time_us))
    if len(steps) == 0:
        raise InputError(str(path), "all rows have the same time", "a trace needs two steps or more")
    step_us = int(np.quantile(steps, 0.5, method="lower"))
    num_steps = (rows.time_us.max() - rows.time_us.min()) // step_us + 1
    if num_steps > 10 * len(rows):
        raise InputError(
            str(path),
            f"{len(rows)} rows spread over {num_steps} steps of {step_us / 1e6:g} s: nearly all samples are missing",
            "check the first and last time: microseconds since 600 s before the trace's start",
        )
    off_grid = (rows.time_us - rows.time_us.min()) % step_us != 0
    _refuse(
        path,
        off_grid,
        times,
        f"is not a whole number of {step_us / 1e6:g} s steps after the first row",
    )
    return step_us


def _parse(path: Path) -> tuple[pd.DataFrame, bool]:
    """The file as a table indexed by line number, and whether its name or its leading `#` line says synthetic."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        first_line = data[: data.find(b"\n")] if data[:1] == b"#" else b""
        # Blank lines are kept until the index says on which line of the file each row stands.
        table = pd.read_csv(
            io.BytesIO(data), skiprows=1 if first_line else 0, skip_blank_lines=False, low_memory=False
        )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), f"truncated or damaged gzip ({error})", "get the file again") from None
    except pd.errors.EmptyDataError:
        raise InputError(str(path), "the file is empty", "get the file again") from None
    except (pd.errors.ParserError, UnicodeDecodeError) as error:
        raise InputError(
            str(path), f"not a CSV file ({str(error).strip()})", "traces/SOURCES.md shows the layout"
        ) from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror})") from None
    if not isinstance(table.index, pd.RangeIndex):  # pandas took the surplus fields for an index
        raise InputError(
            str(path),
            "not a CSV file (rows are longer than the header)",
            "traces/SOURCES.md shows the layout",
        )
    table.index += 3 if first_line else 2
    return table.dropna(how="all"), b"synthetic" in first_line.lower() or "synthetic" in path.name.lower()


def _require(path: Path, table: pd.DataFrame, names: list[str]) -> None:
    missing = [name for name in names if name not in table]
    if not missing:
        return
    others = {str(name) for name in table} - {name for pair in COLUMNS.values() for name in pair}
    if missing == names[-1:] and not difflib.get_close_matches(missing[0], others, n=1, cutoff=0.8):
        for column, (name, _) in COLUMNS.items():
            if name in table:
                raise InputError(
                    str(path),
                    f"has no column {missing[0]}, only {name}",
                    f'set column = "{column}" to use that one',
                )
    problem = f"has no column {missing[0]!r}; {unknown_name(missing[0], others)}"
    raise InputError(str(path), problem, f"needed: {', '.join(names)}")


def _refuse(path: Path, wrong: pd.Series, values: pd.Series, problem: str, way_out: str = "") -> None:
    if wrong.any():
        line = wrong.idxmax()
        raise InputError(f"{path}, line {line}", f"{values.name} = {values[line]} {problem}", way_out)


def _numbers(path: Path, values: pd.Series) -> pd.Series:
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    _refuse(path, ~np.isfinite(numbers) & values.notna(), values, "is not a finite number")
    return numbers


def _flags(path: Path, values: pd.Series, bad_is: bool) -> pd.Series:
    """True where a sample is bad: where its flag is `bad_is`. An empty flag says nothing against its sample."""
    text = values.astype(str).str.lower()
    true, false = text.isin(["true", "1", "1.0"]), text.isin(["false", "0", "0.0"])
    _refuse(path, ~true & ~false & values.notna(), values, "is neither true nor false")
    return true if bad_is else false


def write_csv_gz(table: pd.DataFrame, path: Path, comment: str = "") -> None:
    """Write a table as gzipped CSV, below a first line `# comment` if given. The same table gives the same bytes."""
    text = (f"# {comment}\n" if comment else "") + table.to_csv(index=False, lineterminator="\n")
    aside = path.with_name(f".{path.name}.part")
    aside.write_bytes(gzip.compress(text.encode(), mtime=0))
    os.replace(aside, path)
