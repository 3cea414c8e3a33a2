"""Bandwidth that each compute utilisation needs.

TABLE.json is what `hpctrip plan --bandwidth --format json` prints. A line for each of its rows, with the values in
which the rows differ.
"""

from __future__ import annotations

import json

import click

from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import named_path, read_file
from hpctrip.base.text import aligned
from hpctrip.base.units import figures
from hpctrip.figures.common import style
from hpctrip.figures.common.plot import Drawing, figure
from hpctrip.figures.common.reading import Source, Subject

SHARES = (50, 80, 90, 95, 99)
NEEDED = [f"needed_bps_{share}" for share in SHARES]
RECIPE = [
    "num_params",
    "step_s",
    "local_steps",
    "bits",
    "num_sites",
    "fragments",
    "overlap_steps",
    "latency_s",
]


def read(table: str) -> list[Subject]:
    """The recipes [rows] of a table, with the bandwidths that they need."""
    path = named_path(table, table)
    try:
        return [Subject(pd.DataFrame(json.loads(read_file(path)), dtype=float)[[*RECIPE, *NEEDED]], [path])]
    except (ValueError, TypeError, KeyError, RecursionError):
        hint = "give what hpctrip plan --bandwidth --format json prints"
        raise InputError(table, "is no table of bandwidths", hint) from None


@figure(Source("a table of bandwidths", (click.Argument(["table"], metavar="TABLE.json"),), read))
def plot(rows: pd.DataFrame) -> Drawing:
    """A line through the bandwidths of each row."""
    if len(rows) > style.MOST_LINES:
        raise InputError(
            "the table", f"has {len(rows)} rows, the most is {style.MOST_LINES}", "vary fewer values"
        )
    differ = [key for key in RECIPE if rows[key].nunique() > 1]
    picture, cells = style.figure(2.6), []
    axes = picture.subplots()
    for i, needed in enumerate(rows[NEEDED].to_numpy() / 1e9):
        name = ", ".join(f"{key} {rows[key][i]:g}" for key in differ)
        axes.plot(needed, SHARES, label=name or "needed", **style.line(i))
        cells.append((name or "needed", *map(figures, needed)))
    style.log_axis(axes)
    axes.set(xlabel="Gbit/s of the slowest link", ylabel="Compute utilisation (%)")
    style.finish(picture, "Analytic: a ring all-reduce, steps of equal length")
    return Drawing(picture, rows, aligned(("Gbit/s", *(f"{share} %" for share in SHARES)), cells))
