"""What figures are drawn of: how it is named on the command line, and how it is read."""

from __future__ import annotations

import glob
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
import pandas as pd

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.text import printable, shown
from hpctrip.figures.common.reading import read_runs
from hpctrip.record.cluster import open_cluster
from hpctrip.record.reader import Run, open_runs, read_traces, refuse_other_traces


class Subject(NamedTuple):
    """What one picture is drawn of."""

    what: Any
    files: list[Path]
    """Where it was read from: never written over."""
    out: Path | None = None
    """Where its picture goes by default (None: the figure's name, in the working folder)."""


@dataclass(frozen=True)
class Source:
    """A sort of subjects."""

    needs: str
    params: tuple[click.Parameter, ...]
    read: Callable[..., list[Subject]]
    """Given the values of `params` by name: what to draw, a picture each. Raises InputError."""
    default_out: str = ""
    """How help names the default picture, where it is not the figure's name."""
    of_many: bool = False
    """Whether one picture is drawn of a list of runs."""
    of_study: Callable[[Sequence[Run]], Any] | None = None
    """What is drawn of the runs of a study; None: nothing is."""


def _all_runs(runs: Sequence[str]) -> list[Subject]:
    found = read_runs(runs)
    return [Subject(found, [run.path for run in found])]


def _one_run(runs: Sequence[str]) -> list[Subject]:
    found = read_runs(runs)
    if len(found) > 1:
        problem = f"{len(found)} runs, each with sites of its own"
        raise InputError(printable(" ".join(runs)), problem, "name one run")
    return [Subject(found[0], [found[0].path])]


def _each_run(runs: Sequence[str]) -> list[Subject]:
    return [Subject(run, [run.path], run.path.with_suffix(".png")) for run in read_runs(runs)]


def _clusters(runs: Sequence[str]) -> list[Subject]:
    found = open_runs(runs, opened=open_cluster)
    if faults := [fault for run in found for fault in run.schema_faults()]:
        raise InputError(faults=faults)
    return [Subject(found, [run.path for run in found])]


def _one_cluster(runs: Sequence[str]) -> list[Subject]:
    ((found, files, _),) = _clusters(runs)
    if len(found) > 1 or not len(found[0].intervals):
        raise InputError(
            printable(" ".join(runs)), "is not one cluster with an interval", "name one results file"
        )
    return [Subject(found[0], files)]


def _traces(traces: str, column: str, flags: str) -> list[Subject]:
    frame = read_traces(traces, column, flags)
    frame.attrs["column"] = column
    return [Subject(frame, [*map(Path, glob.glob(traces)), *Path(traces).glob("*.csv")])]


def with_sites(runs: Sequence[Run]) -> Run:
    """The first run whose sites are known, which an imported run's are not; the first of all if none has them."""
    return next((run for run in runs if not run.sites.empty), runs[0])


def traces_of(runs: Sequence[Run]) -> pd.DataFrame:
    """The traces that the first run follows. Raises InputError where it follows none, or they are gone or
    others."""
    power = runs[0].input["power"]
    if power["kind"] != "trace":
        raise InputError("power", f"is of kind {power['kind']}, not trace", "draw it in a study on traces")
    column, path = power["column"], power["path"]
    if path != "synthetic":
        refuse_other_traces(path, runs[0])
    frame = read_traces(path, column, power["flags"], power["synthetic_seed"])
    frame.attrs["column"] = column
    return frame


_RUNS = (click.Argument(["runs"], nargs=-1, required=True, metavar="RUNS..."),)
_TRACES = (
    click.Argument(["traces"], metavar="TRACES"),
    click.Option(
        ["--column"],
        type=click.Choice(["production", "measured"]),
        default="production",
        show_default=True,
        help="Which utilisation; some published files hold the measured one only.",
    ),
    click.Option(
        ["--flags"],
        type=click.Choice(["true-is-bad", "true-is-good"]),
        default="true-is-bad",
        show_default=True,
        help="What true means in the flag columns.",
    ),
)

RUNS = Source("results files, folders or quoted patterns", _RUNS, _all_runs, of_many=True, of_study=list)
ONE_RUN = Source("one results file", _RUNS, _one_run, of_study=with_sites)
EACH_RUN = Source("results files, a picture each", _RUNS, _each_run, "beside the results file, .png")
TRACES = Source(
    "power traces: a folder of cell*.csv(.gz), a file or a quoted pattern",
    _TRACES,
    _traces,
    of_study=traces_of,
)
CLUSTERS = Source("results files of simulated clusters", _RUNS, _clusters, of_many=True)
ONE_CLUSTER = Source("one results file of a simulated cluster", _RUNS, _one_cluster)


def csv_table(integers: Sequence[str], numbers: Sequence[str], may_lack: bool = False) -> Source:
    """A CSV table that has these columns; any other is one of texts. `may_lack`: a number may be empty, it is NaN."""

    def read(table: str) -> list[Subject]:
        found = read_table(table)
        found.require(*integers, *numbers)
        columns = {
            name: found.integers(name)
            if name in integers
            else found.numbers(name, may_lack)
            if name in numbers
            else [printable(text, 1000) for text in texts]
            for name, texts in found.columns.items()
        }
        return [Subject(pd.DataFrame(columns), [Path(table)])]

    return Source("a CSV table", (click.Argument(["table"], metavar="TABLE.csv"),), read)


class _Fraction(click.ParamType):
    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):  # of an option in a study file: a list, 10**400
            number = math.nan
        if not 0 < number <= 1:
            said = f"{printable(shown(value))} is not a fraction in (0, 1], such as 0.45"
            self.fail(said, param, ctx)
        return number


TARGET = click.Option(
    ["--target"],
    type=_Fraction(),
    metavar="FRACTION",
    help="Measure the time to this accuracy on the recorded curves (default: the runs' own target).",
)
