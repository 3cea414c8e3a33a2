"""Power traces, in the layout of Google's PowerData2019 or with a column for each site: files are read, checked and
joined into one `TraceSet`.

Shapes: D power domains, T steps.
"""

from __future__ import annotations

import difflib
import gzip
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from hpctrip.base.csv import Table, read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import is_pattern, matching, replace_file
from hpctrip.base.units import HOUR_S
from hpctrip.sim.times import SHOWN_TWICE, column_us, utc

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
TimeUnit = Literal["us", "ms", "s"]
"""Unit of the numbers in a column `time`."""
Unit = Literal["W", "kW", "MW", "fraction"]
FACTORS: dict[Unit, float] = {"W": 1.0, "kW": 1e3, "MW": 1e6, "fraction": 1.0}
_IN_UNIT = re.compile(r"(.+?)(?:_(\w+)| ?[(\[](\w+)[)\]])")
"""A name that ends in a unit: oslo_kw, oslo (kW), oslo [kW]."""
_UNIT_US: dict[TimeUnit, int] = {"us": 1, "ms": 1_000, "s": 1_000_000}
_INTERVAL_US = (1e6, 24 * HOUR_S * 1e6)
"""Shortest and longest interval of a trace: another one points to another unit of time."""
_DATED_FROM_US = 10**15
"""Numbers from 1e9 s on (2001) count from 1970; smaller ones from a beginning of the trace's own."""
TRACE_START_US = 600_000_000
"""`time` of the first official row: microseconds since 600 s before the trace's start."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TraceSet:
    """Power utilisation of D domains over the same T steps."""

    names: list[str]
    """[D], e.g. "cella_pdu6", sorted by cell, then by number; or the columns of a file, in its order."""
    cells: list[str]
    """[D], e.g. "a"; empty of a file with a column for each site."""
    start_us: int
    """Time of the first step in microseconds: since 1970 for dated traces, else in the files' own clock."""
    step_s: float
    """Seconds that each value holds."""
    util: np.ndarray
    """[D, T] float64: utilisation, in [0, 1]; of `read_site_power` the power, in watts or as a fraction."""
    synthetic: bool
    """Whether any of it was made up."""
    num_filled: np.ndarray
    """[D], steps without a good sample, which hold the previous good one."""
    num_cut: np.ndarray
    """[D], samples cut off because not all domains have them."""
    is_dated: bool = False
    """Whether the times are dates."""

    @property
    def duration_s(self) -> float:
        """Length of the traces, in seconds."""
        return self.util.shape[1] * self.step_s


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
) -> TraceSet:
    """Read power traces: a folder, file or glob, see `trace_files`.

    `column` is "production" or "measured". Each file holds one or more domains, gzipped or not, rows in any order, with
    `time` (a number in `time_unit`) or `datetime` (ISO 8601; without an offset in `timezone`), `cell`, `pdu`, the
    utilisation column, and perhaps its flag column.

    * Flags: true means bad, unless `flags` says "true-is-good". Google's PDF says the latter ("when false, indicates
      low confidence"), Google's own analysis notebook drops the true ones; the default follows the notebook. No flag
      column: all samples are good. A domain of which more than half is flagged bad is refused: its flags are the other
      way round, or it is of no use.
    * Bad, missing and absent samples hold the previous good value (at the start: the first good one); `num_filled`
      counts them.
    * The interval is the median time step (official: 300 s), from 1 s to 1 day, the same in all files; every row must
      lie on its grid.
    * Repeated rows are allowed if they agree.
    * Domains of different length: the set spans the time that all of them cover, from the latest first row to the
      earliest last row; `num_cut` counts the samples left out.

    Raises InputError naming file, line and value.
    """
    paths = trace_files(path)
    rows = pd.concat([_read_file(file, column, flags, time_unit, timezone) for file in paths])
    keys = {*zip(rows.cell, rows.pdu, strict=True)}
    ordered = sorted(keys, key=lambda key: (key[0], len(key[1]), key[1]))  # pdu9 before pdu10
    return _joined(rows, ordered, paths[0].parent, COLUMNS[column][0], flags)


def read_site_power(path: str, unit: Unit | None, timezone: str = "UTC") -> tuple[TraceSet, np.ndarray]:
    """Read a CSV file with a column of times, `time` (ISO 8601; without an offset in `timezone`) or `time_s` (seconds),
    and one column of power for each site, whose name ends in its unit as in `oslo_kw` or `oslo (MW)`, else it is in
    `unit`.

    Returns the traces, in watts or as a fraction, and which of them are fractions, [D] bool. Times and missing values
    are as in `read_trace_files`. Raises InputError naming file, line and value.
    """
    table = read_table(path, f"power.path = {path!r}", may_comment=True)
    time_names = [name for name in ("time", "time_s") if name in table.columns]
    if len(time_names) != 1 or "pdu" in table.columns:
        columns = ", ".join(table.columns)
        problem = f"has not one column of times, time or time_s, and one for each site, but {columns}"
        google = 'power.kind = "trace" reads the layout of PowerData2019'
        way_out = (
            google if "pdu" in table.columns else "rename the column of times to time, or to time_s (seconds)"
        )
        raise InputError(table.place, problem, way_out)
    (time_name,) = time_names
    if len(table.lines) == 0 or len(table.columns) == 1:
        raise InputError(table.place, "holds no power", "give two rows or more, and a column for each site")
    if time_name == "time":
        time_us = column_us(table, "time", timezone)
    else:
        time_s = table.numbers("time_s")
        table.refuse("time_s", np.abs(time_s) > 1e10, "is not a time in seconds")
        time_us = np.rint(time_s * 1e6).astype(np.int64)
    common = {
        "time_us": time_us,
        "step_us": _step_us(table, time_name, time_us),
        "is_dated": time_name == "time",
        **_facts(table, path),
    }
    columns = {name: _named_unit(table, name, unit) for name in table.columns if name != time_name}
    rows = [
        pd.DataFrame(
            {"cell": "", "pdu": pdu, "util": _power(table, name, of), "bad": False, **common}, table.lines
        )
        for name, (pdu, of) in columns.items()
    ]
    names = [pdu for pdu, _ in columns.values()]
    if len({*names}) < len(names):
        raise InputError(
            table.place, f"has two columns of one site among {', '.join(columns)}", "leave one out"
        )
    keys = [("", name) for name in names]
    traces = _joined(pd.concat(rows), keys, Path(path), "its column", "true-is-bad")
    return traces, np.array([of == "fraction" for _, of in columns.values()])


def _named_unit(table: Table, column: str, unit: Unit | None) -> tuple[str, Unit]:
    """(the site that a column is of, its unit), by its name or else `unit`. InputError where neither tells."""
    match = _IN_UNIT.fullmatch(column)
    units = {name.lower(): name for name in FACTORS}
    if match and (of := units.get((match[2] or match[3]).lower())):
        return match[1], of
    if unit is None:
        if match and (match[2] or match[3]).lower() in ("wh", "kwh", "mwh"):
            problem = f"has energy, not power, in the column {column!r}"
            raise InputError(
                table.place, problem, f"divide by the hours of a step, and name it e.g. {match[1]}_kw"
            )
        hint = f"write e.g. {column}_kw, or set power.unit to one of {', '.join(FACTORS)}"
        raise InputError(table.place, f"does not tell the unit of the column {column!r}", hint)
    return column, unit


def _power(table: Table, column: str, unit: Unit) -> np.ndarray:
    """A column in watts or as a fraction, [R]; NaN where a field is empty."""
    values = table.numbers(column, may_lack=True) * FACTORS[unit]
    highest = 1.0 if unit == "fraction" else 1e15
    table.refuse(column, (values < 0) | (values > highest), f"is outside 0 to {highest:g}")
    return values


def _joined(
    rows: pd.DataFrame, keys: Sequence[tuple[str, str]], place: Path, what: str, flags: Flags
) -> TraceSet:
    """The traces of the domains `keys`, (cell, pdu), in this order; `what` names their values in messages."""
    domains = dict(iter(rows.groupby(["cell", "pdu"], sort=False)))
    times_us = _common_times_us(rows, place)
    util = pd.concat({key: _at_times(domains[key], times_us, what, flags) for key in keys}, axis="columns")
    num_filled = util.isna().sum().to_numpy()
    num_cut = np.array([(~domains[key].time_us.between(times_us[0], times_us[-1])).sum() for key in keys])
    if num_filled.any() or num_cut.any():
        _logger.warning(
            "power traces %s: %d of %d samples are bad or missing and hold the previous good value; %d lie outside the "
            "time common to all %d domains and are cut off",
            place,
            num_filled.sum(),
            util.size,
            num_cut.sum(),
            len(keys),
        )
    return TraceSet(
        names=[_name(*key) for key in keys],
        cells=[cell for cell, _ in keys],
        start_us=times_us.start,
        step_s=times_us.step / 1e6,
        util=np.ascontiguousarray(util.ffill().bfill().to_numpy().T),
        synthetic=bool(rows.synthetic.any()),
        num_filled=num_filled,
        num_cut=num_cut,
        is_dated=bool(rows.is_dated.all()),
    )


def _name(cell: str, pdu: str) -> str:
    return f"cell{cell}_{pdu}" if cell else pdu


def _common_times_us(rows: pd.DataFrame, folder: Path) -> range:
    """The steps from the latest first row of a domain to the earliest last row. InputError where files have different
    intervals, or domains no time in common."""
    first, *others = rows.drop_duplicates("step_us").itertuples()
    if others:
        raise InputError(
            others[0].path,
            f"its interval is {others[0].step_us / 1e6:g} s, but that of {first.path} is {first.step_us / 1e6:g} s",
            "read files of one interval, e.g. by a pattern such as path = 'folder/cella_pdu?.csv.gz'",
        )
    times_us = rows.groupby(["cell", "pdu"]).time_us
    start_us, end_us = int(times_us.min().max()), int(times_us.max().min())
    if start_us >= end_us:
        raise InputError(str(folder), "the domains have no time in common", "read files of one period")
    return range(start_us, end_us + 1, int(first.step_us))


def _at_times(domain: pd.DataFrame, times_us: range, what: str, flags: Flags) -> pd.Series:
    """The utilisation of one domain at these times, NaN where there is no good sample. InputError where it has none at
    all, or most are flagged bad, rows contradict each other, or its times lie between these."""
    first, bad = domain.iloc[0], int(domain.bad.sum())
    name = _name(first.cell, first.pdu)
    if 2 * bad > len(domain):
        other = next(meaning for meaning in get_args(Flags) if meaning != flags)
        raise InputError(
            first.path,
            f"{bad} of {len(domain)} samples of {name} are flagged bad ({flags})",
            f'if its flags are the other way round, set flags = "{other}"; else leave the domain out',
        )
    offset_us = (domain.time_us - times_us.start) % times_us.step
    if offset_us.any():
        raise InputError(
            domain.path.iloc[int(offset_us.argmax())],
            f"its times lie {offset_us.max() / 1e6:g} s off the {times_us.step / 1e6:g} s grid of the other domains",
        )
    good = domain.dropna(subset="util").drop_duplicates(["time_us", "util"])
    clash = good[good.time_us.duplicated(keep="last")]
    if len(clash):
        row, line = clash.iloc[0], clash.index[0]
        last = good.util[good.time_us == row.time_us].iloc[-1]
        time = utc(row.time_us) if row.is_dated else row.time_us
        raise InputError(
            f"{row.path}, line {line}",
            f"value {row.util:g} of {name} at time {time} contradicts another row of that time, {last:g}",
            f"keep one of them{SHOWN_TWICE if row.is_dated else ''}",
        )
    util = good.set_index("time_us").util.reindex(times_us)
    if util.isna().all():
        raise InputError(first.path, f"{what} of {name} has no good sample", "leave it out")
    return util


def _read_file(path: Path, column: str, flags: Flags, time_unit: TimeUnit, timezone: str) -> pd.DataFrame:
    """The rows of one file, checked by itself: cell, pdu, time_us, util (NaN: bad or missing), bad; indexed by line.
    Besides, in every row the same: path, the median time step step_us, whether it is synthetic, and whether dated."""
    table = read_table(path, may_comment=True)
    util_name, bad_name = COLUMNS[column]
    time_name = "datetime" if "datetime" in table.columns and "time" not in table.columns else "time"
    if util_name not in table.columns and not difflib.get_close_matches(
        util_name, table.columns, cutoff=0.85
    ):
        for other, (name, _) in COLUMNS.items():
            if name in table.columns:
                problem = f"has no column {util_name}, only {name}"
                raise InputError(table.place, problem, f'set column = "{other}" to use that one')
    table.require(time_name, "cell", "pdu", util_name)
    if len(table.lines) == 0:
        raise InputError(str(path), "no rows", f"the file is cut short; get it again: {ORIGIN}")
    util = table.numbers(util_name, may_lack=True)
    bad = np.zeros(len(util), dtype=bool)
    if bad_name in table.columns:
        bad = table.flags(bad_name, empty=flags == "true-is-good") == (flags == "true-is-bad")
        util = np.where(bad, np.nan, util)
    outside = (util < 0) | (util > 1)
    table.refuse(util_name, outside, "is outside 0..1", "utilisation is a fraction, not a percentage")
    cells, pdus = table.texts("cell"), table.texts("pdu")
    if time_name == "datetime":
        time_us = column_us(table, "datetime", timezone, list(map(" ".join, zip(cells, pdus, strict=True))))
    else:
        time = table.integers("time")
        table.refuse("time", np.abs(time) > 2**53 // _UNIT_US[time_unit], f"is not a time in {time_unit}")
        time_us = time * _UNIT_US[time_unit]
    return pd.DataFrame(
        {
            "cell": cells,
            "pdu": pdus,
            "time_us": time_us,
            "util": util,
            "bad": bad,
            "step_us": _step_us(table, time_name, time_us, time_unit if time_name == "time" else None),
            "is_dated": time_name == "datetime" or time_us.min() >= _DATED_FROM_US,
            **_facts(table, path),
        },
        index=table.lines,
    )


def _facts(table: Table, path: str | Path) -> dict[str, Any]:
    """The path of a file, and whether it calls itself synthetic: the same in all its rows."""
    names = table.comment, Path(path).name
    return {"path": str(path), "synthetic": any("synthetic" in name.lower() for name in names)}


def _step_us(table: Table, time_name: str, time_us: np.ndarray, time_unit: TimeUnit | None = None) -> int:
    """The median time step, on whose grid every row must lie. InputError where no trace has such steps, so that
    `time_unit`, that of the column if the input chooses it, must be another one."""
    steps = np.diff(np.unique(time_us))
    if len(steps) == 0:
        raise InputError(table.place, "all rows have the same time", "a trace needs two steps or more")
    step_us = int(np.quantile(steps, 0.5, method="lower"))
    low_us, high_us = _INTERVAL_US
    if not low_us <= step_us <= high_us:
        number = step_us // _UNIT_US[time_unit] if time_unit else 0
        others = [unit for unit, factor in _UNIT_US.items() if low_us <= number * factor <= high_us]
        read = f", read in {time_unit}," if time_unit else ""
        raise InputError(
            table.place,
            f"column {time_name}{read} has a median interval of {step_us / 1e6:g} s; a trace has 1 s to 1 day",
            f'set time_unit = "{others[0]}"' if others else "check the times",
        )
    num_steps = (time_us.max() - time_us.min()) // step_us + 1
    if num_steps > 10 * len(time_us):
        raise InputError(
            table.place,
            f"{len(time_us)} rows spread over {num_steps} steps of {step_us / 1e6:g} s: "
            "nearly all samples are missing",
            "check the first and last time",
        )
    off_grid = (time_us - time_us.min()) % step_us != 0
    problem = f"is not a whole number of {step_us / 1e6:g} s steps after the first row"
    table.refuse(time_name, off_grid, problem)
    return step_us


def write_csv_gz(table: pd.DataFrame, path: Path, comment: str = "") -> None:
    """Write a table as gzipped CSV, below a first line `# comment` if given. The same table gives the same bytes."""
    text = (f"# {comment}\n" if comment else "") + table.to_csv(index=False, lineterminator="\n")
    replace_file(path, gzip.compress(text.encode(), mtime=0))
