"""Tables as text for other programs: CSV, and LaTeX with the package booktabs."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from pydantic_core import to_json

from hpctrip.base.frames import pd
from hpctrip.base.text import printable


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
