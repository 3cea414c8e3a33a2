"""Power traces in the layout of Google's PowerData2019: files are read, checked and joined into one `TraceSet`.

Shapes: D power domains, T steps.
"""

from __future__ import annotations

import difflib
import glob
import gzip
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import replace_file
from hpctrip.base.times import moments_us

ORIGIN = (
    'Google\'s PowerData2019 is at "gs://powerdata_2019/cell*.csv.gz" (gsutil -m cp); files of your own need the '
    "columns time, cell, pdu and production_power_util"
)
"""Where to get traces; hpctrip comes without any."""
COLUMNS = {
    "production": ("production_power_util", "bad_production_power_data"),
    "measured": ("measured_power_util", "bad_measurement_data"),
}
"""{what to read: (utilisation column, flag column)} of the official files."""
Flags = Literal["true-is-bad", "true-is-good"]
"""What `true` in a flag column means (see `read_trace_files`)."""
TRACE_START_US = 600_000_000
"""`time` of the first official row: microseconds since 600 s before the trace's start."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TraceSet:
    """Power utilisation of D domains over the same T steps."""

    names: list[str]
    """[D], e.g. "cella_pdu6", sorted by cell, then by number."""
    cells: list[str]
    """[D], e.g. "a"."""
    start_us: int
    """`time` of the first step, microseconds in the files' own clock."""
    step_s: float
    """Seconds that each value holds."""
    util: np.ndarray
    """[D, T] float64, in [0, 1]."""
    synthetic: bool
    """Whether any of it was made up."""
    num_filled: np.ndarray
    """[D], steps without a good sample, which hold the previous good one."""
    num_cut: np.ndarray
    """[D], samples cut off because not all domains have them."""

    @property
    def duration_s(self) -> float:
        """Length of the traces, in seconds."""
        return self.util.shape[1] * self.step_s


class TraceFile(NamedTuple):
    """The checked content of one file."""

    path: Path
    rows: pd.DataFrame
    """cell, pdu, time_us, util (NaN: bad or missing), bad; indexed by line number."""
    step_us: int
    """The median time step, microseconds; every row lies on this grid."""
    synthetic: bool
    """Whether the file's name or first line says so."""


def trace_files(path: str | Path) -> list[Path]:
    """The files that `path` means: one file, a glob, or a folder (its `cell*.csv` and `cell*.csv.gz`), sorted."""
    if any(mark in str(path) for mark in "*?["):
        paths = [Path(name) for name in glob.glob(str(path), recursive=True)]
        missing = "no file matches this pattern"
    elif Path(path).is_dir():
        paths = [file for file in Path(path).glob("cell*") if file.name.endswith((".csv", ".csv.gz"))]
        missing = "no cell*.csv or cell*.csv.gz in this folder"
    else:
        paths = [Path(path)] if Path(path).exists() else []
        missing = "no such file or folder"
    if not paths:
        raise InputError(str(path), missing, ORIGIN)
    return sorted(paths)


def read_trace_files(
    paths: str | Path | Iterable[Path], column: str = "production", flags: Flags = "true-is-bad"
) -> TraceSet:
    """Read power traces: a folder, file or glob (see `trace_files`), or a list of files.

    `column` is "production" or "measured". Each file holds one or more domains, gzipped or not, rows in any order, with
    `time` (microseconds) or `datetime`, `cell`, `pdu`, the utilisation column, and perhaps its flag column.

    * Flags: true means bad, unless `flags` says "true-is-good". Google's PDF says the latter ("when false, indicates
      low confidence"), Google's own analysis notebook drops the true ones; the default follows the notebook. No flag
      column: all samples are good. A domain of which more than half is flagged bad is refused: its flags are the other
      way round, or it is of no use.
    * Bad, missing and absent samples hold the previous good value (at the start: the first good one); `num_filled`
      counts them.
    * The interval is the median time step (official: 300 s), the same in all files; every row must lie on its grid.
    * Repeated rows are allowed if they agree.
    * Domains of different length: the set spans the time that all of them cover, from the latest first row to the
      earliest last row; `num_cut` counts the samples left out.

    Raises InputError naming file, line and value.
    """
    paths = trace_files(paths) if isinstance(paths, str | Path) else sorted(paths)
    if not paths:
        raise InputError("traces", "no file to read")
    files = [_read_file(path, column, flags) for path in paths]
    step_us = _common_step_us(files)
    domains = _domains(files)
    keys, tables = list(domains), list(domains.values())

    start_us = int(max(table.time_us.min() for table in tables))
    end_us = int(min(table.time_us.max() for table in tables))
    if start_us >= end_us:
        raise InputError(
            str(paths[0].parent), "the domains have no time in common", "read files of one period"
        )
    util = np.full((len(keys), (end_us - start_us) // step_us + 1), np.nan)
    num_cut = np.array([_place(util[d], table, start_us, step_us) for d, table in enumerate(tables)])
    for table, values in zip(tables, util, strict=True):
        _check_usable(table, values, column, flags)
    util, num_filled = _filled(util)
    if num_filled.any() or num_cut.any():
        _logger.warning(
            "power traces %s: %d of %d samples are bad or missing and hold the previous good value; %d lie outside the "
            "time common to all %d domains and are cut off",
            paths[0].parent,
            num_filled.sum(),
            util.size,
            num_cut.sum(),
            len(keys),
        )
    return TraceSet(
        names=[f"cell{cell}_{pdu}" for cell, pdu in keys],
        cells=[cell for cell, _ in keys],
        start_us=start_us,
        step_s=step_us / 1e6,
        util=util,
        synthetic=any(file.synthetic for file in files),
        num_filled=num_filled,
        num_cut=num_cut,
    )


def _domains(files: Sequence[TraceFile]) -> dict[tuple[str, str], pd.DataFrame]:
    """The rows of each power domain, {(cell, pdu): rows}, sorted by cell and by the number of the domain."""
    parts: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for file in files:
        for key, rows in file.rows.groupby(["cell", "pdu"], sort=False):
            parts.setdefault(key, []).append(rows.assign(path=str(file.path)))
    keys = sorted(parts, key=lambda key: (key[0], len(key[1]), key[1]))  # pdu9 before pdu10
    return {key: pd.concat(parts[key]) for key in keys}


def _common_step_us(files: Sequence[TraceFile]) -> int:
    """The interval of all files. InputError where they differ."""
    first = files[0]
    for other in files[1:]:
        if other.step_us != first.step_us:
            raise InputError(
                str(other.path),
                f"its interval is {other.step_us / 1e6:g} s, but that of {first.path} is {first.step_us / 1e6:g} s",
                "read files of one interval, e.g. by a pattern such as path = 'folder/cella_pdu?.csv.gz'",
            )
    return first.step_us


def _check_usable(table: pd.DataFrame, util: np.ndarray, column: str, flags: Flags) -> None:
    """InputError where most samples of a domain are flagged bad, or none of its utilisations [T] is good."""
    row, bad = table.iloc[0], int(table.bad.sum())
    if 2 * bad > len(table):
        other = next(meaning for meaning in get_args(Flags) if meaning != flags)
        raise InputError(
            row.path,
            f"{bad} of {len(table)} samples of cell{row.cell}_{row.pdu} are flagged bad ({flags})",
            f'if its flags are the other way round, set flags = "{other}"; else leave the domain out',
        )
    if np.isnan(util).all():
        problem = f"{COLUMNS[column][0]} of cell{row.cell}_{row.pdu} has no good sample"
        raise InputError(row.path, problem, "leave the domain out")


def _filled(util: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Utilisation [D, T] in which the newest good value so far (at the start: the first good one) stands for NaN, and
    how many steps of each domain were filled, [D]."""
    good = ~np.isnan(util)
    newest = np.maximum.accumulate(np.where(good, np.arange(util.shape[1]), 0), axis=1)
    util = np.take_along_axis(util, np.maximum(newest, good.argmax(axis=1)[:, None]), axis=1)
    return util, (~good).sum(axis=1)


def _place(out: np.ndarray, table: pd.DataFrame, start_us: int, step_us: int) -> int:
    """Write the good samples of one domain into `out` [T], NaN elsewhere; returns the number of rows outside it."""
    place, offset_us = np.divmod(table.time_us.to_numpy() - start_us, step_us)
    if offset_us.any():
        raise InputError(
            table.path.iloc[int(offset_us.argmax())],
            f"its times lie {offset_us.max() / 1e6:g} s off the {step_us / 1e6:g} s grid of the other domains",
        )
    inside = (place >= 0) & (place < len(out))
    good = inside & table.util.notna().to_numpy()
    place, util = place[good], table.util.to_numpy()[good]
    out[place] = util
    clash = out[place] != util
    if clash.any():
        line, row = table.index[good][clash][0], table[good][clash].iloc[0]
        raise InputError(
            f"{row.path}, line {line}",
            f"utilisation {row.util:g} of cell{row.cell}_{row.pdu} at time {row.time_us} contradicts another row of "
            f"that time, {out[place][clash][0]:g}",
            "keep one of them",
        )
    return int((~inside).sum())


def _read_file(path: Path, column: str, flags: Flags) -> TraceFile:
    """Read one file and check it by itself; arguments as in `read_trace_files`."""
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
            "time_us": table.integers("time") if time_name == "time" else moments_us(table, "datetime"),
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
    """`Table.require`, with a better error where only the other utilisation column is there."""
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
