"""Rows that are dataclasses, and the columns that tables make of them: the one source of every file's schema."""

from __future__ import annotations

import math
from dataclasses import MISSING, field, fields
from typing import Any

import numpy as np

TEXT = "text"
"""The dtype of a column of texts."""


def column(doc: str, unit: str = "1", dtype: str = "f8", **default: Any) -> Any:
    """A field that becomes one column of the results file, with its unit and description."""
    return field(metadata={"doc": doc, "unit": unit, "dtype": dtype}, **default)


def counted(doc: str, unit: str) -> Any:
    """A column of what only some machines count: NaN in a row where it was not counted, and absent from a table in
    which no row has it."""
    return field(metadata={"doc": doc, "unit": unit, "dtype": "f8", "is_counted": True}, default=math.nan)


def is_measured(name: str) -> bool:
    """Whether the numbers of this column are the machine's, not the result's: measured times and energies."""
    return name.endswith(("wall_s", "wall_j")) or name == "idle_fraction"


def columns(cls: type) -> dict[str, dict[str, Any]]:
    """{name: {doc, unit, dtype}} of a row class. A column that came later has a `default` too, which stands where
    older files lack it."""
    return {
        f.name: dict(f.metadata) | ({} if f.default is MISSING else {"default": f.default})
        for f in fields(cls)
        if f.metadata
    }


def spread_defaults(row: Any, length: int) -> None:
    """Make arrays [length] of the columns of a frozen row that still have their default, which is one number."""
    for f in fields(row):
        if f.default is not MISSING and np.ndim(value := getattr(row, f.name)) == 0:
            object.__setattr__(row, f.name, np.full(length, value))
