"""Numbers of the pages of results, each computed from rows in docs/results (see audit.py)."""

from collections.abc import Iterable, Sequence

from hpctrip.base.text import markdown_table


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as a paragraph of Markdown."""
    return f"\n\n{markdown_table(head, rows)}\n\n"
