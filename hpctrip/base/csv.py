"""Strict reader of the CSV files that an input names.

RFC 4180 with any line end: the first line holds the column names, which are unique; every row has as many fields as
there are columns; fields may be quoted. Empty lines are skipped, except in a table of one column, where they are rows.
UTF-8, with or without a byte order mark, plain or gzipped (detected by the first bytes, not by the name). Blanks at
either end of a field are removed, because texts that print alike mean the same.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import read_unpacked
from hpctrip.base.text import counted, shown, unknown_name

_DECIMAL = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
"""A decimal number: not nan, inf, 1_000, or digits of other scripts."""
_NUMERALS = frozenset("0123456789+-.eE")
_BLANK = re.compile(r"[^\S\n]")
_MISSING = "leave the field empty"
_HINTS = {
    r"(?i)[-+]?(nan|na|n/a|n\.a\.|#n/a|null|none|nil|missing)|-+|\?|\.": _MISSING,
    r"[-+]?\d{1,3}([ ,'\u00a0\u202f]\d{3})+(\.\d*)?": "write it without thousands separators, as 1234.5",
    r"[-+]?[\d.]*,\d*": "write a decimal point, and no thousands separators, as 1234.5",
    r"[-+]?[\d.]+ ?[^\d.,_].*": "write the number alone, without a unit",
}
"""{form of a field that is not a number: what to do about it}."""
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}
_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


@dataclass(frozen=True)
class Table:
    """A CSV file of R rows of text, which the methods convert to values.

    They raise InputError with the line, column and value of the first invalid field. A field may be empty only with
    `may_lack`.
    """

    place: str
    """Name of the file in messages."""
    columns: dict[str, Sequence[str]]
    """{name: [R]}."""
    lines: np.ndarray
    """[R] line number on which each row begins."""
    comment: str
    """The line above the header that begins with #; empty where there is none."""

    def require(self, *names: str) -> None:
        """Raise InputError where one of these columns is missing."""
        for name in names:
            if name not in self.columns:
                problem = f"has no column {name!r}; {unknown_name(name, self.columns)}"
                needed = f"needed: {', '.join(names)}"
                raise InputError(self.place, problem, needed)

    def one_of(self, names: Iterable[str]) -> str:
        """That of these columns which is there; empty: none is. InputError where two are."""
        present = [name for name in names if name in self.columns]
        if len(present) > 1:
            raise InputError(self.place, f"has the columns {' and '.join(present)}", "give one of them")
        return present[0] if present else ""

    def column(self, name: str) -> Sequence[str]:
        """The texts of a column, [R]. InputError where it is missing."""
        self.require(name)
        return self.columns[name]

    def numbers(self, name: str, may_lack: bool = False) -> np.ndarray:
        """A column of finite decimal numbers, [R] float64; NaN where the field is empty or, as in tables that hpctrip
        wrote, NaN."""
        texts = self.column(name)
        values = _floats(texts)
        wrong = ~np.isfinite(values)
        if may_lack:
            wrong &= ~np.isin(texts, ("", "NaN"))
        first = texts[int(wrong.argmax())] if wrong.any() else ""
        hint = next((text for form, text in _HINTS.items() if re.fullmatch(form, first)), "")
        self.refuse(name, wrong, "is not a finite number", "" if hint == _MISSING and not may_lack else hint)
        return values

    def integers(self, name: str) -> np.ndarray:
        """A column of whole numbers below 2^53 (3, 3.0 and 3e0 are the same one), [R] int64."""
        values = self.numbers(name)
        exact = (np.abs(values) < 2**53) & (values == np.floor(values))
        self.refuse(name, ~exact, "is not a whole number below 2^53")
        return values.astype(np.int64)

    def flags(self, name: str, empty: bool | None = None) -> np.ndarray:
        """A column of true and false, in any case, or 1 and 0, [R] bool; `empty`: the value of empty fields, if any."""
        meaning = {text: _FLAGS.get(text.lower()) for text in set(self.column(name))} | {"": empty}
        flags = [meaning[text] for text in self.column(name)]
        self.refuse(name, np.array([flag is None for flag in flags], bool), "is neither true nor false")
        return np.array(flags, dtype=bool)

    def texts(self, name: str) -> Sequence[str]:
        """A column of texts, none empty, [R]."""
        texts = self.column(name)
        self.refuse(name, ~np.array(texts, object).astype(bool), "is missing")
        return texts

    def refuse(self, name: str, wrong: np.ndarray, problem: str, hint: str = "") -> None:
        """Raise InputError for the first row that is `wrong` [R]."""
        if wrong.any():
            row = int(wrong.argmax())
            value = shown(self.column(name)[row])
            raise InputError(f"{self.place}, line {self.lines[row]}", f"{name} = {value} {problem}", hint)


def read_table(path: str | Path, place: str = "", may_comment: bool = False) -> Table:
    """Read a CSV file. InputError at `place` (default: the path), with the line, where it is not a valid table.

    `may_comment`: a line that begins with # may stand above the header.
    """
    place = place or str(path)
    text = _text(read_unpacked(path, place), place)
    comment, _, body = text.partition("\n") if may_comment and text.startswith("#") else ("", "", text)
    needs_care = '"' in body or "\n\n" in body or body.startswith("\n")
    lines, widths, fields = _parsed(body, place) if needs_care else _cut(body)
    lines += bool(comment)
    width = int(widths[0])
    if (widths != width).any():
        row = int((widths != width).argmax())
        raise InputError(
            f"{place}, line {lines[row]}",
            f"not a CSV file (has {counted(widths[row], 'field')}, but the header has {counted(width, 'field')})",
            _hint(body.partition("\n")[0]),
        )
    if needs_care or _BLANK.search(body):
        fields = [field.strip() for field in fields]
    header = fields[:width]
    if width == 1 and any(mark in header[0] for mark in _OTHER_SEPARATORS):
        raise InputError(place, f"has one column, {shown(header[0])}", _hint(header[0]))
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise InputError(place, f"has two columns {shown(twice[0])}", "give every column its own name")
    columns = {name: fields[width + i :: width] for i, name in enumerate(header)}
    return Table(place, columns, lines[1:], comment)


def _floats(texts: Sequence[str]) -> np.ndarray:
    """[R] the numbers in these texts; NaN where one is not a decimal number."""
    if _NUMERALS.issuperset("".join(texts)):  # the usual case: then float takes the same texts, and is faster
        with suppress(ValueError):
            return np.array([float(text or "nan") for text in texts], np.float64)
    return np.array([float(text) if _DECIMAL.fullmatch(text) else np.nan for text in texts], np.float64)


def _hint(header: str) -> str:
    """Hint for a file whose rows do not have the fields of its header."""
    other = next((name for mark, name in _OTHER_SEPARATORS.items() if mark in header), None)
    if other is None:
        return "a field with a comma in it is written in double quotes"
    return f"fields are separated by commas, not {other}, and numbers have a decimal point: convert the file"


def _text(data: bytes, place: str) -> str:
    """Decode a file, with "\n" for line ends and none at the end."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        hint = "CSV is read plain or gzipped: unpack any other archive first"
        if other := _other_encoding(data):
            hint = f"it seems to be in {other}: iconv -f {other} -t UTF-8 FILE > NEW_FILE converts it"
        raise InputError(place, "not a CSV file (no text in UTF-8)", hint)
    if not text:
        raise InputError(place, "the file is empty", "copy or fetch the file again")
    return text


def _other_encoding(data: bytes) -> str:
    """The likely encoding of a text that is not in UTF-8; empty for data that are no text."""
    halves = data[:80:2].strip(b"\0"), data[1:80:2].strip(b"\0")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"" in halves != (b"", b""):
        return "UTF-16"
    return "" if re.search(rb"[\0-\x08\x0e-\x1f]", data) else "WINDOWS-1252"


def _cut(text: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(first line of each row, fields of each row, all fields), the header included.

    Only for text without quotes and empty lines, where it is much faster than `csv`.
    """
    symbols = np.frombuffer(text.encode(), np.uint8)
    is_end = symbols[(symbols == ord(",")) | (symbols == ord("\n"))] == ord("\n")
    ends = np.append(np.flatnonzero(is_end), len(is_end))
    return np.arange(1, len(ends) + 1), np.diff(ends, prepend=-1), text.replace("\n", ",").split(",")


def _parsed(text: str, place: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The same as `_cut` for any text."""
    reader = csv.reader(io.StringIO(text), strict=True)
    rows, lines = [], []
    line = 1
    try:
        for row in reader:
            if row or not rows or len(rows[0]) == 1:
                rows.append(row or [""])
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{place}, line {line}", f"not a CSV file ({error})", "check the quotes") from None
    return np.array(lines), np.array([len(row) for row in rows]), [field for row in rows for field in row]
