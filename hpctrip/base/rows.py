"""Dataclass rows whose fields define the columns of tables: the schema of results files."""

from __future__ import annotations

import math
from dataclasses import MISSING, field, fields
from typing import Any

import numpy as np

TEXT = "text"
"""dtype of a text column."""


def column(doc: str, unit: str = "1", dtype: str = "f8", **default: Any) -> Any:
    """A dataclass field that is a column of the results file, with its unit and description."""
    return field(metadata={"doc": doc, "unit": unit, "dtype": dtype}, **default)


def counted(doc: str, unit: str) -> Any:
    """A column of a quantity that only some machines count: NaN where it was not counted, and absent from a table in
    which no row has it."""
    return field(metadata={"doc": doc, "unit": unit, "dtype": "f8", "is_counted": True}, default=math.nan)


def is_measured(name: str) -> bool:
    """Whether a column holds measurements of the machine (times and energies) rather than results."""
    return name.endswith(("wall_s", "wall_j")) or name == "idle_fraction"


def columns(cls: type) -> dict[str, dict[str, Any]]:
    """{name: {doc, unit, dtype}} of a row class; a column added later also has a `default` for files that lack it."""
    return {
        f.name: dict(f.metadata) | ({} if f.default is MISSING else {"default": f.default})
        for f in fields(cls)
        if f.metadata
    }


def spread_defaults(row: Any, length: int) -> None:
    """Expand the columns of a frozen row that still hold their scalar default to arrays [length]."""
    for f in fields(row):
        if f.default is not MISSING and np.ndim(value := getattr(row, f.name)) == 0:
            object.__setattr__(row, f.name, np.full(length, value))
