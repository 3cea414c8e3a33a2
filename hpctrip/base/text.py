"""Text for people: escaped and shortened messages, spelling suggestions, tables of aligned columns and of Markdown."""

from __future__ import annotations

import difflib
import reprlib
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

SCREEN_BYTES = 3500


def printable(text: str, limit: int = 400) -> str:
    r"""`text` on one line of about `limit` characters, with unprintable characters escaped.

    Control characters, ANSI sequences, line ends, bidirectional marks and lone surrogates are escaped as in repr: \x1b,
    \n, \u202e. Longer text ends in "... (N more characters)".
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
    r"""`text` with backslash escapes for characters outside the encoding, such as \udcff in file names."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def size_text(num_bytes: float) -> str:
    """A number of bytes as text: "1.5 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num_bytes < 1000 or unit == "GB":
            break
        num_bytes /= 1000
    return f"{num_bytes:.3g} {unit}" if num_bytes < 1000 else f"{num_bytes:,.0f} {unit}"


def duration(seconds: float) -> str:
    """Wall time as short text, e.g. 90 s, 12 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def counted(number: int, name: str) -> str:
    """1 site, 2 sites."""
    return f"{number} {name}" + ("" if number == 1 else "s")


def screenful(lines: Sequence[str]) -> Iterator[str]:
    """The lines up to SCREEN_BYTES, then the number of lines left out."""
    left = SCREEN_BYTES
    for number, line in enumerate(lines):
        left -= len(line.encode())
        if number and left < 0:
            yield f"and {len(lines) - number:,} more"
            return
        yield line


def printable_toml(text: str) -> str:
    """TOML text with unprintable characters replaced by TOML escapes of the same meaning."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\U{ord(c):08X}" for c in text)


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns, the first to the left and the others to the right."""
    widths = [max(len(line[i]) for line in (head, *rows)) for i in range(len(head))]
    lines = []
    for line in (head, *rows):
        rest = (cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))
        lines.append("  ".join((line[0].ljust(widths[0]), *rest)).rstrip())
    return lines


def labelled(texts: Mapping[str, str], limit: int, width: int = 0) -> Iterator[str]:
    """Lines of {label: text} in two columns, each text escaped and cut to about `limit` characters, and wrapped to a
    width (0: that of the terminal)."""
    indent = max(map(len, texts), default=0) + 2
    for label, text in texts.items():
        yield textwrap.fill(
            printable(text, limit) or "-",
            width or shutil.get_terminal_size().columns,
            initial_indent=f"{label:{indent}}",
            subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; line ends and bars within cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    cells = [[" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def shown(value: Any) -> str:
    """repr(value), shortened to fit an error message."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxlist, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxlong = 4, 20, 20, 200, 60
_SHORT.maxother = 60


def closest(name: str, names: Iterable[str]) -> str:
    """The name that a misspelt one is nearest to; empty where none is near."""
    near = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.5)
    return near[0] if near else ""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """`"did you mean 'x'?"` for a misspelt name; empty where none is near."""
    near = closest(name, names)
    unit = next((text for end, text in _UNITS.items() if near.endswith(end)), "")
    return f"did you mean {near!r}{unit}?" if near else ""


_UNITS = {"bps": " (bits per second, 8 for a byte)", "_mw": " (megawatts)", "_mwh": " (megawatt-hours)"}
"""{end of a name: the unit that it means, which other letters or cases would change}."""


def unknown_name(name: Any, names: Iterable[str]) -> str:
    """`"did you mean 'x'? known: ..."` for a misspelt name."""
    names = sorted(names)
    near = did_you_mean(name if isinstance(name, str) else shown(name), names)
    return f"{near} known: {', '.join(names)}".lstrip()
