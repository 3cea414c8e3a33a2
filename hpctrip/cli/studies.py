"""The command `study`, and `run` with sweeps. They import heavy modules when called."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpctrip.base.errors import Fault, InputError
from hpctrip.base.text import printable
from hpctrip.cli import inputs
from hpctrip.cli.arguments import FILE, Speed, plugins_option
from hpctrip.cli.package_data import SITE_OPTIONS, site_options
from hpctrip.ranks.launched import launched_size

if TYPE_CHECKING:
    from hpctrip.studies.run_store import RunState
    from hpctrip.studies.study import Study

RESULTS = "results/studies"
"""Default folder of studies and their runs."""


class Jobs(click.IntRange):
    """A number of workers, or `auto`, which is None."""

    name = "jobs"

    def __init__(self) -> None:
        super().__init__(1, 10_000)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Parse the number of workers."""
        return None if value == "auto" else super().convert(value, param, ctx)


jobs_option = click.option(
    "--jobs",
    type=Jobs(),
    default="auto",
    metavar="N|auto",
    help="Runs side by side: one per GPU, or per core.",
)


sweep_option = click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="KEY=VALUE,VALUE",
    help="An axis: runs with each of these values; 0..9 are ten.",
)


@click.command()
@click.argument("path", type=FILE, metavar="FILE.toml|NAME", required=False)
@click.option(
    "--out", type=FILE, default=RESULTS, show_default=True, metavar="DIR", help="Where runs and studies lie."
)
@jobs_option
@click.option(
    "--ranks", type=click.IntRange(1, 100_000), default=1, help="Ranks of every run, started by mpirun."
)
@click.option(
    "--only", metavar="PATTERN", help="Only runs whose name holds this text, or matches it (* and ?)."
)
@click.option("--small", is_flag=True, help="The study's small form.")
@click.option(
    "-o",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="One line of TOML laid over all runs.",
)
@sweep_option
@plugins_option
@click.option(
    "--import",
    "imports",
    type=FILE,
    multiple=True,
    metavar="LEDGER.csv",
    help="First take up runs made elsewhere.",
)
@click.option(
    "--list", "listed", is_flag=True, help="Make nothing: say what is finished, running, failed or stale."
)
@click.option(
    "--dry-run", "planned", is_flag=True, help="Make nothing: say what is left, its wall time and disk."
)
@click.option(
    "--samples-per-second", type=Speed(), help="For --dry-run: speed of a worker; absent: measured."
)
@click.option("--slurm", "submitted", is_flag=True, help="Submit what is left as a job array.")
@click.option("--at-once", type=click.IntRange(1), metavar="N", help="For --slurm: so many tasks at a time.")
@site_options
@click.option(
    "--task",
    type=click.IntRange(0),
    hidden=True,
    help="Make the run of this index, on the ranks that there are.",
)
@click.option("--tasks", type=FILE, hidden=True, help="For --task: the file of runs that the index counts.")
def study(path: str | None, **args: Any) -> None:
    """Make all runs of a study that are not finished, then its table and figures; without FILE: list what there is.

    Each run is made once and kept by what it is made of (input, data, code of your own), so studies share runs,
    and a study that is started again, after a kill or with another input, does only what is missing.
    """
    if path is None:
        _list_studies()
    elif args["task"] is not None:
        from hpctrip.studies.slurm import run_task

        run_task(args["task"], args["tasks"], lambda: _read(path, args))
    else:
        _require_single_process("study")
        _study(path, args)


def _read(path: str, args: dict[str, Any]) -> list[Study]:
    from hpctrip.studies.studies import read_studies, study_file

    options = (args[name] for name in ("overrides", "sweeps", "plugins", "small"))
    return read_studies(study_file(path), Path(args["out"]), *options)


def _study(path: str, args: dict[str, Any]) -> None:
    from hpctrip.studies import run as runs
    from hpctrip.studies.imported import import_runs
    from hpctrip.studies.studies import all_entries

    studies = _read(path, args)
    for ledger in args["imports"]:
        line = import_runs(ledger, all_entries(studies), studies[0].runs.folder / "runs")
        click.echo(printable(line, 1000))
    lines = runs.chosen(studies, args["only"])
    if args["listed"]:
        for line in lines:
            click.echo(printable(f"{line.status:11}  {line.entry.name}  {line.reason}".rstrip(), 300))
    elif args["planned"]:
        from hpctrip.studies.execute import capacity
        from hpctrip.studies.plan import report

        for text in report(lines, args["jobs"] or capacity()[0], args["samples_per_second"]):
            click.echo(printable(text, 1000))
    elif args["submitted"]:
        _submit(path, studies, [line for line in lines if line.can_be_made], args)
    else:
        runs.run(studies, args["only"], args["jobs"], args["ranks"], _command_line())


def _submit(path: str, studies: list[Study], todo: list[RunState], args: dict[str, Any]) -> None:
    from hpctrip.studies.slurm import submit

    if not todo:
        click.echo("nothing is left to make")
        return
    words = [path, "--out", args["out"], *(["--small"] if args["small"] else [])]
    for option, values in (("-o", "overrides"), ("--sweep", "sweeps"), ("--plugin", "plugins")):
        words += [word for value in args[values] for word in (option, value)]
    jobs = submit(studies, todo, args["at_once"], words, **{name: args[name] for name in SITE_OPTIONS})
    arrays = "an array" if len(jobs) == 1 else f"{len(jobs)} arrays"
    click.echo(f"job {', '.join(jobs)}: {len(todo)} runs as tasks of {arrays}")
    line = f"table and figures, once all is over: python -m hpctrip study {shlex.join(words)}"
    click.echo(printable(line, 4000))


def _command_line() -> str:
    return f"python -m hpctrip {shlex.join(sys.argv[1:])}"


_SWEEP = """

With --sweep policy.k=10,20,40 --sweep seed=0..9 all combinations are run, side by side, as a study is: --out then names
its folder, and the same command goes on with what is missing.
"""


@click.command(help=f"{inputs.run.help}{_SWEEP}", short_help=inputs.run.get_short_help_str(100))
@sweep_option
@jobs_option
def run(sweeps: tuple[str, ...], jobs: int | None, **args: Any) -> None:
    """See `help`."""
    run_one = inputs.run.callback
    assert run_one is not None
    if not sweeps:
        try:
            run_one(**args)
        except InputError as error:
            raise InputError(
                faults=[_with_sweep(fault, args["overrides"]) for fault in error.faults]
            ) from None
        return
    from hpctrip.studies.run import run as make
    from hpctrip.studies.studies import sweep_study

    _require_single_process("run --sweep")
    folder = args["out"] or RESULTS
    if folder.endswith((".h5", ".hdf5")):
        raise InputError(f"--out {folder}", "is one file, and a sweep makes several", "name a folder")
    if args["overwrite"]:
        raise InputError("--overwrite", "a sweep keeps each run by its input: there is nothing to overwrite")
    swept = sweep_study(args["paths"], Path(folder), args["overrides"], sweeps, args["plugins"])
    make([swept], None, jobs, 1, _command_line())


run.params[2:2] = inputs.run.params


def _with_sweep(fault: Fault, overrides: tuple[str, ...]) -> Fault:
    """The fault, with a hint if it is of a line that looks like several values."""
    for line in overrides:
        key, _, value = line.partition("=")
        if fault.place.startswith(f"{key.strip()} = ") and ("," in value or ".." in value):
            return replace(fault, way_out=f"for several values: --sweep {line}")
    return fault


def _list_studies() -> None:
    from hpctrip.config.package_data import STUDIES, described, shipped

    files = shipped(STUDIES)
    width = max(map(len, files), default=0)
    for name, file in files.items():
        click.echo(f"{name:{width}}  {described(file)}")


def _require_single_process(command: str) -> None:
    if launched_size() > 1:
        problem = f"was started {launched_size()} times by a launcher"
        raise InputError(command, problem, "start it once: it starts its runs itself (--jobs, --ranks)")
