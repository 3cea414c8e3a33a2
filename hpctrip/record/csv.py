"""Tables as CSV, for people and other programs: also those that take a cell for an order."""

from __future__ import annotations

import pandas as pd
from pandas.api.types import is_numeric_dtype

from hpctrip.base.text import printable


def csv_bytes(frame: pd.DataFrame) -> bytes:
    """The frame as CSV with a header, UTF-8. Numbers keep all their digits; NaN is an empty cell.

    What is not printable in a text is escaped (`printable`), because programs differ on where a line ends; a text that
    a spreadsheet would compute (it begins with = + - or @ and is no number) gets an apostrophe in front.
    """
    safe = pd.DataFrame(
        {name: frame[name] if is_numeric_dtype(frame[name]) else frame[name].map(_cell) for name in frame}
    )
    safe.columns = [_cell(name) for name in frame]
    return safe.to_csv(index=False, lineterminator="\n").encode()


def _cell(text: str) -> str:
    text = printable(text, 10 * len(text))  # the longest escape has 10 characters
    if text.startswith(("=", "+", "-", "@")) and not _is_number(text):
        return f"'{text}"
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
