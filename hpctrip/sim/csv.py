"""Reads the small CSV tables that an input names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from hpctrip.base.errors import InputError


def read_table(path: str, place: str, needed: str) -> pd.DataFrame:
    """The table in a CSV file with a header. InputError at `place` (the input key); `needed` says what it should be."""
    if not Path(path).is_file():
        raise InputError(place, "no such file", f"give a CSV file with {needed}")
    try:
        table = pd.read_csv(path)
    except (ValueError, OSError) as error:  # pandas' own errors are ValueErrors
        raise InputError(place, f"not a readable CSV file ({str(error).strip()})") from None
    if not isinstance(table.index, pd.RangeIndex):  # pandas took the surplus fields for an index
        raise InputError(place, "not a CSV file (rows are longer than the header)", f"it needs {needed}")
    return table


def column_numbers(table: pd.DataFrame, column: str) -> np.ndarray:
    """A column as float64 [rows]; NaN where it is no number."""
    return pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)
