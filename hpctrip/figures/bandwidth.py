"""Bandwidth that each compute utilisation needs.

TABLE.json is what `hpctrip plan --bandwidth --format json` prints. A line for each of its rows, with the values in
which the rows differ.
"""

from __future__ import annotations

import json
from contextlib import suppress

import click

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import named_path, read_file
from hpctrip.base.text import aligned
from hpctrip.base.units import figures
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import Source, Subject

NEEDED = "needed_bps_"
"""Beginning of the columns with the bandwidth that a utilisation, their end in percent, needs."""


def read(table: str) -> list[Subject]:
    """The recipes [rows] of a table, with the bandwidths that they need."""
    path = named_path(table, table)
    with suppress(ValueError, TypeError, KeyError, RecursionError):
        rows = pd.DataFrame(json.loads(read_file(path)), dtype=float)
        if percent_of(rows):
            return [Subject(rows.drop(columns=["sent_bits", "utilisation"]), [path])]
    hint = "give what hpctrip plan --bandwidth --format json prints"
    raise InputError(table, "is no table of bandwidths", hint)


def percent_of(rows: pd.DataFrame) -> dict[str, int]:
    """{column of bandwidths: utilisation in percent}."""
    return {name: int(name.removeprefix(NEEDED)) for name in map(str, rows) if name.startswith(NEEDED)}


@figure(Source("a table of bandwidths", (click.Argument(["table"], metavar="TABLE.json"),), read))
def plot(rows: pd.DataFrame) -> Drawing:
    """A line through the bandwidths of each row."""
    if len(rows) > style.MOST_LINES:
        raise InputError(
            "the table", f"has {len(rows)} rows, the most is {style.MOST_LINES}", "vary fewer values"
        )
    percent = percent_of(rows)
    differ = [name for name in rows if name not in percent and rows[name].nunique() > 1]
    picture, cells = style.figure(2.6), []
    axes = picture.subplots()
    for i, needed in enumerate(rows[[*percent]].to_numpy() / 1e9):
        name = ", ".join(f"{key} {rows[key][i]:g}" for key in differ)
        axes.plot(needed, [*percent.values()], label=name or "needed", **style.line(i))
        cells.append((name or "needed", *map(figures, needed)))
    style.log_axis(axes)
    axes.set(xlabel="Gbit/s of the slowest link", ylabel="Compute utilisation (%)")
    style.finish(picture, "Analytic: a ring all-reduce, steps of equal length")
    return Drawing(picture, rows, aligned(("Gbit/s", *(f"{share} %" for share in percent.values())), cells))
