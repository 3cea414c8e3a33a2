"""Foreign text on its way to a person: of a length that is read, and without what a terminal would obey."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

SCREEN_BYTES = 3500


def printable(text: str, limit: int = 400) -> str:
    r"""`text` in one line of about `limit` characters, fit for a terminal.

    What Python calls not printable (control characters and ANSI sequences, line ends, bidirectional marks, lone
    surrogates) is escaped as repr does: \x1b, \n, \u202e. Ordinary Unicode stays. What is longer ends in
    "... (N more characters)".
    """
    if len(text) <= limit and text.isprintable():
        return text
    pieces: list[str] = []
    left = limit
    for shown, char in enumerate(text):
        piece = char if char.isprintable() else char.encode("unicode_escape").decode()
        left -= len(piece)
        if left < 0:
            return f"{''.join(pieces)}... ({len(text) - shown:,} more characters)"
        pieces.append(piece)
    return "".join(pieces)


def encodable(text: str, encoding: str = "utf-8") -> str:
    r"""`text` with backslash escapes for what the encoding cannot say: a file's name that is no UTF-8 has \udcff."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def size_text(num_bytes: float) -> str:
    """A number of bytes in words: "1.5 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}" if num_bytes < 1000 else f"{num_bytes:,.0f} {unit}"


def screenful(lines: Sequence[str]) -> Iterator[str]:
    """The lines up to SCREEN_BYTES, then how many more there are."""
    left = SCREEN_BYTES
    for number, line in enumerate(lines):
        left -= len(line.encode())
        if number and left < 0:
            yield f"and {len(lines) - number:,} more"
            return
        yield line


def printable_toml(text: str) -> str:
    """TOML text with what is not printable in its strings escaped as TOML does: it means the same."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08X}" for c in text)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown: every cell in one line, whose bars do not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def shown(value: Any) -> str:
    """repr(value), shortened while it is made: of a value of any size, depth and number of digits."""
    return _SHORT.repr(value)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict, self.maxstring, self.maxlong = 4, 20, 20, 200, 60

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes no integer of more than 4,300 digits
            return f"<an integer of {x.bit_length():,} bits>"


_SHORT = _Short()
