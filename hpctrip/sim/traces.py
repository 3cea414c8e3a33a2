"""Power traces: joins files of PowerData2019 into one table of utilisation.

Shapes: D power domains, T steps.
"""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError
from hpctrip.sim.trace_file import COLUMNS, ORIGIN, Flags, read_trace_file

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


def trace_files(path: str | Path) -> list[Path]:
    """The files that `path` means: one file, a glob, or a folder (its `cell*.csv` and `cell*.csv.gz`), sorted."""
    if any(mark in str(path) for mark in "*?["):
        found = [Path(name) for name in glob.glob(str(path), recursive=True)]
        missing = "no file matches this pattern"
    elif Path(path).is_dir():
        found = [file for file in Path(path).glob("cell*") if file.name.endswith((".csv", ".csv.gz"))]
        missing = "no cell*.csv or cell*.csv.gz in this folder"
    else:
        found = [Path(path)] if Path(path).exists() else []
        missing = "no such file or folder"
    if not found:
        raise InputError(str(path), missing, ORIGIN)
    return sorted(found)


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
    files = trace_files(paths) if isinstance(paths, str | Path) else sorted(paths)
    if not files:
        raise InputError("traces", "no file to read")
    read = [read_trace_file(file, column, flags) for file in files]
    step_us = read[0].step_us
    for other in read[1:]:
        if other.step_us != step_us:
            raise InputError(
                str(other.path),
                f"its interval is {other.step_us / 1e6:g} s, but that of {read[0].path} is {step_us / 1e6:g} s",
                "read files of one interval, e.g. by a pattern such as path = 'folder/cella_pdu?.csv.gz'",
            )

    domains: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for file in read:
        for key, rows in file.rows.groupby(["cell", "pdu"], sort=False):
            domains.setdefault(key, []).append(rows.assign(path=str(file.path)))
    keys = sorted(domains, key=lambda key: (key[0], len(key[1]), key[1]))  # pdu9 before pdu10
    tables = [pd.concat(domains[key]) for key in keys]

    start_us = max(table.time_us.min() for table in tables)
    end_us = min(table.time_us.max() for table in tables)
    if start_us >= end_us:
        raise InputError(
            str(files[0].parent), "the domains have no time in common", "read files of one period"
        )
    util = np.full((len(keys), int((end_us - start_us) // step_us) + 1), np.nan)
    num_cut = np.zeros(len(keys), dtype=np.int64)
    for d, table in enumerate(tables):
        num_cut[d] = _place(util[d], table, int(start_us), step_us)

    good = ~np.isnan(util)
    for table, (cell, pdu), is_good in zip(tables, keys, good, strict=True):
        place, bad = table.path.iloc[0], int(table.bad.sum())
        if 2 * bad > len(table):
            other = next(meaning for meaning in get_args(Flags) if meaning != flags)
            raise InputError(
                place,
                f"{bad} of {len(table)} samples of cell{cell}_{pdu} are flagged bad ({flags})",
                f'if its flags are the other way round, set flags = "{other}"; else leave the domain out',
            )
        if not is_good.any():
            raise InputError(
                place, f"{COLUMNS[column][0]} of cell{cell}_{pdu} has no good sample", "leave the domain out"
            )
    # The newest good step so far; before the first good step, that one.
    newest = np.maximum.accumulate(np.where(good, np.arange(util.shape[1]), 0), axis=1)
    util = np.take_along_axis(util, np.maximum(newest, good.argmax(axis=1)[:, None]), axis=1)
    num_filled = (~good).sum(axis=1)
    if num_filled.any() or num_cut.any():
        _logger.warning(
            "power traces %s: %d of %d samples are bad or missing and hold the previous good value; %d lie outside the "
            "time common to all %d domains and are cut off",
            files[0].parent,
            num_filled.sum(),
            util.size,
            num_cut.sum(),
            len(keys),
        )
    return TraceSet(
        names=[f"cell{cell}_{pdu}" for cell, pdu in keys],
        cells=[cell for cell, _ in keys],
        start_us=int(start_us),
        step_s=step_us / 1e6,
        util=util,
        synthetic=any(file.synthetic for file in read),
        num_filled=num_filled,
        num_cut=num_cut,
    )


def _place(out: np.ndarray, table: pd.DataFrame, start_us: int, step_us: int) -> int:
    """Write the good samples of one domain into `out` [T], NaN elsewhere; returns how many rows fall outside."""
    place, offset_us = np.divmod(table.time_us.to_numpy() - start_us, step_us)
    if offset_us.any():
        raise InputError(
            table.path.iloc[int(offset_us.argmax())],
            f"its times lie {offset_us.max() / 1e6:g} s off the {step_us / 1e6:g} s grid of the other domains",
        )
    inside = (place >= 0) & (place < len(out))
    kept = inside & table.util.notna().to_numpy()
    place, util = place[kept], table.util.to_numpy()[kept]
    out[place] = util
    clash = out[place] != util
    if clash.any():
        line, row = table.index[kept][clash][0], table[kept][clash].iloc[0]
        raise InputError(
            f"{row.path}, line {line}",
            f"utilisation {row.util:g} of cell{row.cell}_{row.pdu} at time {row.time_us} contradicts another row of "
            f"that time, {out[place][clash][0]:g}",
            "keep one of them",
        )
    return int((~inside).sum())
