"""Foreign text on its way to a person: of a length that is read, and without what a terminal would obey."""

from __future__ import annotations


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
