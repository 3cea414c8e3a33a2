"""GPUs by a measured table of watts and samples per second: one that comes with hpctrip, or your own."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import model_validator

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.io import PathName
from hpctrip.base.sources import Reads
from hpctrip.sim.throughput.base import THROUGHPUT_MODELS
from hpctrip.sim.throughput.points import OperatingPoints, Points

MOST_POINTS = 10_000
LARGEST = 1e12
"""Of watts and of samples per second."""


@THROUGHPUT_MODELS.add
class Curve(OperatingPoints):
    """GPUs at the operating points of a table: a row for each with `watts`, drawn on average, and
    `samples_per_second`, in any unit of work; other columns (`clock_mhz`, `cap_watts`) are for people.

    The tables that come with hpctrip are means over the workloads that were measured (traces/SOURCES.md of the source
    tree).
    """

    kind = "curve"
    gpu: Literal["A100", "A40", "A40-caps", "P100-caps", "RTX6000-caps", "V100-caps"] | None = None
    """A table that comes with hpctrip: at locked clocks, or under power caps. Absent: that of `path`, else A100."""
    path: Annotated[PathName | None, Reads()] = None
    """Your own table, a CSV file."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.gpu is not None and self.path is not None:
            raise ValueError("gpu and path exclude each other: a table that comes with hpctrip, or your own")
        return self

    def points(self) -> Points:
        """The rows of the table. InputError names the file and the line that is wrong."""
        if self.path is not None:
            return read_curve(self.path, f"throughput.path = {self.path!r}")
        return shipped_curve(self.gpu or "A100")


@cache
def shipped_curve(gpu: str) -> Points:
    """A table that comes with hpctrip."""
    with as_file(files("hpctrip.sim.throughput").joinpath("curves", f"{gpu}.csv")) as path:
        return read_curve(str(path), gpu)


def read_curve(path: str, place: str) -> Points:
    """A table of operating points. InputError names the line that is wrong."""
    table = read_table(path, place, may_comment=True)
    table.require("watts", "samples_per_second")
    if not 1 <= len(table.lines) <= MOST_POINTS:
        raise InputError(
            table.place, f"holds {len(table.lines):,} rows", f"give 1 to {MOST_POINTS:,} operating points"
        )
    columns = []
    for name in ("watts", "samples_per_second"):
        values = table.numbers(name)
        table.refuse(name, (values <= 0) | (values > LARGEST), f"is not above 0 and at most {LARGEST:g}")
        columns.append(np.asarray(values))
    return Points(*columns)
