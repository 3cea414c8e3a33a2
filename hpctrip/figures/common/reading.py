"""The input of figures: how the command line names it, how it is read, and its description in a few words."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from hpctrip.base.csv import read_table
from hpctrip.base.errors import InputError
from hpctrip.base.frames import pd
from hpctrip.base.io import named_path, read_text
from hpctrip.base.text import counted, shown
from hpctrip.base.units import HOUR_S
from hpctrip.config.sources import read_sources
from hpctrip.record.reader import Run, open_runs, read_traces, refuse_other_traces, trace_files


def read_runs(patterns: Sequence[str]) -> list[Run]:
    """The runs that files, folders and patterns name, each with at least one round and all columns. Raises InputError
    for the folder of several studies, whose runs are not one comparison, and of one, which has no results files."""
    for pattern in patterns:
        folder = Path(pattern)
        ledgers = sorted((folder.parent if folder.name == "runs" else folder).rglob("ledger.csv"))
        if len(ledgers) > 1 or (ledgers and ledgers[0].parent == folder):
            names = ", ".join(ledger.parent.name for ledger in ledgers[:5])
            problem = f"holds the runs of studies ({names})"
            hint = f"draw one of them: {tables_command(ledgers[0].parent, '--figure FIGURE')}"
            raise InputError(pattern, problem, hint)
    runs = open_runs(patterns)
    for run in runs:
        if faults := run.schema_faults():
            raise InputError(faults=faults)
        if run.rounds.empty:
            raise InputError(str(run.path), "holds no finished round", "let it run longer, or leave it out")
    return runs


def tables_command(folder: Path, options: str = "") -> str:
    """The command with these options that makes the tables of the sweep in a folder, as it has recorded it; else what
    is to be given."""
    with suppress(InputError, ValueError, IndexError, RecursionError):
        file = sorted([*folder.glob("sweeps.jsonl"), *folder.glob("*/sweeps.jsonl")])[0]
        command = json.loads(read_text(file).splitlines()[-1])
        if command and isinstance(command, str):
            return f"{command} --out {shlex.quote(str(file.parents[1]))} {options}".rstrip()
    given = (
        "with its input file or name, and the --sweep, -o and --out of its runs, which are not recorded there"
    )
    return f"hpctrip study tables FILE|NAME {options}".rstrip() + f", {given}"


def percent(fraction: float) -> str:
    """45 %, 45.2 %, or "none" for NaN."""
    return "none" if np.isnan(fraction) else f"{100 * fraction:.3g} %"


def provenance(runs: Sequence[Run]) -> str:
    """Whether data and power are synthetic, or which power it is, in a few words. The time of every run is simulated,
    whatever its data."""
    parts = []
    for what, otherwise in (("data", "real data"), ("power", power(runs))):
        made_up = sum(bool(run.meta[f"synthetic_{what}"]) for run in runs)
        some = "" if made_up in (0, len(runs)) else f" in {made_up} of {len(runs)} runs"
        parts.append(f"synthetic {what}{some}" if made_up else otherwise)
    return f"{', '.join(parts)}; simulated time"


def power(runs: Sequence[Run]) -> str:
    """Names the power of runs where it is not synthetic: by its file, whose contents may be anything, or by its kind.
    Runs of which only rows are kept do not say it."""
    tables = [run.input["power"] for run in runs if "power" in run.input]
    names = sorted({Path(table.get("path") or table["kind"]).name for table in tables})
    if not names:
        return "power that is not synthetic"
    return f"power of {names[0] if len(names) == 1 else counted(len(names), 'file')}"


def common_target(runs: Sequence[Run], target: float | None) -> float:
    """The accuracy to measure at: the one asked for, or the runs' own where they agree."""
    if target is not None:
        return target
    targets = sorted({float(run.meta["target_accuracy"]) for run in runs})
    if len(targets) == 1 and targets[0] > 0:
        return targets[0]
    listed = ", ".join(f"{target:g}" for target in targets)
    raise InputError("runs", f"no common target accuracy ({listed})", "name one with --target")


def cohort_steps(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Cohort size as a step curve: (hours [rounds + 1], sites [rounds + 1]) for `where="post"`."""
    rounds = run.rounds
    hours = np.append(rounds["clock_start_s"], rounds["clock_s"].iloc[-1]) / HOUR_S
    return hours, np.append(rounds["num_sites"], rounds["num_sites"].iloc[-1])


class Subject(NamedTuple):
    """The input of one picture."""

    what: Any
    files: list[Path]
    """The files that it, or its run, was read from; they are never overwritten."""
    out: Path | None = None
    """The default path of its picture (None: that of the figure, in the working folder)."""


@dataclass(frozen=True)
class Source:
    """A kind of input: its command-line parameters and its reader."""

    needs: str
    """The input in words."""
    params: tuple[click.Parameter, ...]
    read: Callable[..., list[Subject]]
    """From the values of `params` by name to one subject a picture. Raises InputError."""
    default_out: str = ""
    """The default picture as help names it, where it is not that of the figure."""
    of_many: bool = False
    """Whether one picture is drawn of a list of runs."""
    of_study: Callable[[Sequence[Run]], Any] | None = None
    """Turns the runs of a study into the input of the figure; None: the figure cannot be drawn of a study."""
    whole: bool = False
    """Whether it needs more of the runs than their inputs, ends and curves."""


def _all_runs(runs: Sequence[str]) -> list[Subject]:
    subjects = _each_run(runs)
    return [Subject([subject.what for subject in subjects], [file for s in subjects for file in s.files])]


def _one_run(runs: Sequence[str]) -> list[Subject]:
    subjects = _each_run(runs)
    if len(subjects) > 1:
        problem = f"{len(subjects)} runs, each with sites of its own"
        raise InputError(" ".join(runs), problem, "name one run")
    return [subjects[0]._replace(out=None)]


def _each_run(runs: Sequence[str]) -> list[Subject]:
    return [Subject(run, [run.path, *read_by(run)], picture_beside(run.path)) for run in read_runs(runs)]


def read_by(run: Run) -> list[Path]:
    """The files that a run has read, by their names in its input."""
    return [Path(source.path) for source in read_sources(run.meta.get("sources", ()))]


def picture_beside(results: Path) -> Path:
    """The default path of a run's picture: run.png of run.h5, and run.hdf5.png of run.hdf5, which may lie beside it."""
    return results.with_name(f"{results.name.removesuffix('.h5')}.png")


def _traces(traces: str, column: str, flags: str, **options: Any) -> list[Subject]:
    files = [] if traces == "synthetic" else trace_files(traces)
    return [Subject(read_traces(traces, column, flags, **options), files)]


def with_sites(runs: Sequence[Run]) -> Run:
    """The first run that has a table of sites. Raises InputError if all were imported, which have none."""
    if whole := [run for run in runs if not run.sites.empty]:
        return whole[0]
    raise InputError("the runs", "were imported, without their sites", "draw it of a run that was made here")


def traces_of(runs: Sequence[Run]) -> pd.DataFrame:
    """The traces that the first run follows. Raises InputError where it follows none, or they are gone or
    others."""
    power = runs[0].input["power"]
    if power["kind"] != "trace":
        raise InputError("power", f"is of kind {power['kind']}, not trace", "draw it in a study on traces")
    column, path = power["column"], power["path"]
    if path != "synthetic":
        refuse_other_traces(path, runs[0])
    how = {key: power[key] for key in ("time_unit", "timezone", "longest_gap_s")}
    return read_traces(path, column, power["flags"], power["synthetic_seed"], **how)


RUNS_ARGUMENT = (click.Argument(["runs"], nargs=-1, required=True, metavar="RUNS..."),)
"""The parameters of a source that reads results files."""
_TRACES = (
    click.Argument(["traces"], metavar="TRACES"),
    *(
        click.Option([name], type=click.Choice(choices), default=choices[0], show_default=True, help=about)
        for name, choices, about in (
            (
                "--column",
                ("production", "measured"),
                "Which utilisation; some published files hold the measured one only.",
            ),
            ("--flags", ("true-is-bad", "true-is-good"), "What true means in the flag columns."),
            ("--time-unit", ("us", "ms", "s"), "Unit of a column `time`."),
        )
    ),
)
RUNS = Source(
    "results files, folders or quoted patterns", RUNS_ARGUMENT, _all_runs, of_many=True, of_study=list
)
WHOLE_RUNS = replace(RUNS, whole=True)
ONE_RUN = Source("one results file", RUNS_ARGUMENT, _one_run, of_study=with_sites, whole=True)
EACH_RUN = Source("results files, a picture each", RUNS_ARGUMENT, _each_run, "beside the results file, .png")
TRACES = Source(
    "power traces: a folder of cell*.csv(.gz), a file or a quoted pattern",
    _TRACES,
    _traces,
    of_study=traces_of,
)


def csv_table(
    texts: Sequence[str] = (),
    integers: Sequence[str] = (),
    numbers: Sequence[str] = (),
    may_lack: bool = False,
) -> Source:
    """A CSV table that has rows and these columns; any other is one of texts. `may_lack`: a number may be empty, it is
    NaN."""

    def read(table: str) -> list[Subject]:
        path = named_path(table, table)
        rows = read_table(path)
        rows.require(*texts, *integers, *numbers)
        if not len(rows.lines):
            raise InputError(table, "has no rows", "name another table")
        columns = rows.columns | {name: rows.integers(name) for name in integers}
        columns |= {name: rows.numbers(name, may_lack) for name in numbers}
        return [Subject(pd.DataFrame(columns), [path])]

    return Source("a CSV table", (click.Argument(["table"], metavar="TABLE.csv"),), read)


class _Fraction(click.ParamType):
    name = "fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):  # of an option in a study file: a list, 10**400
            number = math.nan
        if not 0 < number <= 1:
            self.fail(f"{shown(value)} is not a fraction in (0, 1], such as 0.45", param, ctx)
        return number


TARGET = click.Option(
    ["--target"],
    type=_Fraction(),
    metavar="FRACTION",
    help="Measure the time to this accuracy on the recorded curves (default: the runs' own target).",
)
